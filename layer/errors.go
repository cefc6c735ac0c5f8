package layer

import (
	"errors"
	"fmt"
)

// What commands answer. Errors of the engine pass through wrapped (package kv). "Final" means that the same call will never succeed.
var (
	// ErrFenced: the node row says that this node epoch is fenced. Final.
	ErrFenced = errors.New("node is fenced")
	// ErrReplaced: the node has registered again at a newer epoch. Final.
	ErrReplaced = errors.New("node was replaced by a newer registration")
	// ErrNodeNotFound: no such node row, or the epoch was never given out.
	ErrNodeNotFound = errors.New("node not found")
	// ErrNotFenced: the node epoch is alive, so nothing of it may be taken over.
	ErrNotFenced = errors.New("node is not fenced")
	// ErrTargetGone: the other node that the command names is fenced, replaced or unknown; the proposer is not.
	ErrTargetGone = errors.New("target node is gone")
	// ErrHeartbeatMoved: the node has heartbeated since it was judged dead.
	ErrHeartbeatMoved = errors.New("node has heartbeated since")
	// ErrNotHolder: the lease has another holder or epoch, or was released; for AcquireLease: it is not as it was seen.
	ErrNotHolder = errors.New("lease is not held so")
	// ErrStaleLeader: the stream's leader or leader epoch is another. Read the row again.
	ErrStaleLeader = errors.New("stream has another leader or leader epoch")
	// ErrStaleStream: the stream is not open by this node at this epoch. Final for that epoch.
	ErrStaleStream = errors.New("stream is not open by this node at this epoch")
	// ErrStreamOpen: the stream is still open by somebody else.
	ErrStreamOpen = errors.New("stream is still open")
	// ErrStreamEnded: the stream was ended for ever, at another offset than asked for.
	ErrStreamEnded = errors.New("stream has ended")
	// ErrTableExists: the name is taken.
	ErrTableExists = errors.New("table exists")
	// ErrTableNotFound: no such table, or it is being deleted.
	ErrTableNotFound = errors.New("table not found")
	// ErrStreamNotFound: no such stream, or it is being deleted.
	ErrStreamNotFound = errors.New("stream not found")
	// ErrTransferNotFound: no transfer of this stream is pending, or another one is.
	ErrTransferNotFound = errors.New("transfer not found")
	// ErrTransferPending: the stream is being transferred to another node.
	ErrTransferPending = errors.New("another transfer is pending")
	// ErrWALMoved: the first live segment is not the expected one: somebody got on. Read the row again.
	ErrWALMoved = errors.New("first live segment has moved")
	// ErrWALSealed: the log of this node epoch is sealed. Final.
	ErrWALSealed = errors.New("write-ahead log is sealed")
	// ErrWALNotSealed: the log must be sealed before this.
	ErrWALNotSealed = errors.New("write-ahead log is not sealed")
	// ErrWALNotDone: the log's streams must be closed, and it be finished, before this.
	ErrWALNotDone = errors.New("write-ahead log is not done")
	// ErrWALNotFound: no such log, or it was done and is forgotten. Final.
	ErrWALNotFound = errors.New("write-ahead log not found")
	// ErrNotPrepared: the object is neither prepared nor referenced, so its bytes may be gone. Write another one.
	ErrNotPrepared = errors.New("object is not prepared")
	// ErrStraddles: an index entry begins below the stream's durable end and ends above it. See *StraddleError.
	ErrStraddles = errors.New("index entry straddles the durable end")
	// ErrGap: an index entry begins above the stream's durable end: records between would be lost.
	ErrGap = errors.New("index entry leaves a gap after the durable end")
	// ErrEntriesChanged: the index entries to be merged are not those that the stream has.
	ErrEntriesChanged = errors.New("index entries have changed")
	// ErrNewerFormat: the keyspaces were written by a newer format than this binary knows.
	ErrNewerFormat = errors.New("metadata has a newer format")
	// ErrCorruptRow: a row does not decode. The message names the key.
	ErrCorruptRow = errors.New("corrupt row")
	// ErrInvalid: the arguments make no sense. Final.
	ErrInvalid = errors.New("invalid")
)

// StraddleError tells which entry met which durable end. It is met when a part of another grouping of the same segments was committed
// before: retry the same pack, or take the segments one by one, which always ends on the boundaries of any grouping.
type StraddleError struct {
	Entry      ObjectEntry
	DurableEnd int64
}

func (e *StraddleError) Error() string {
	return fmt.Sprintf("%v: stream %d: entry [%d, %d) of object %s, durable end %d", ErrStraddles, e.Entry.Stream, e.Entry.Base, e.Entry.End, e.Entry.Object, e.DurableEnd)
}

// Is makes errors.Is(err, ErrStraddles) true.
func (e *StraddleError) Is(target error) bool { return target == ErrStraddles }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
