package layer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer/kv/tuple"
)

var errNotWritten = errors.New("not yet written")

// IDs gives out ids of a counter, a block at a time.
type IDs struct{}

func NewIDs(store *Store, name string, block int64) *IDs { return &IDs{} }
func (i *IDs) Next(ctx context.Context) (int64, error)   { return 0, errNotWritten }
func (s *Store) AllocateIDs(ctx context.Context, name string, n int64) (first int64, err error) {
	return 0, errNotWritten
}

// NodeInfo is what a process tells of itself when it registers.
type NodeInfo struct {
	ID                 int64
	Kafka, HTTP, Admin string
	Slots              int
	Version, Rack      string
}

func (s *Store) RegisterNode(ctx context.Context, info NodeInfo, mode FenceMode, requestID, incarnation uuid.UUID, at time.Time) (NodeRow, WALRow, error) {
	return NodeRow{}, WALRow{}, errNotWritten
}
func (s *Store) Heartbeat(ctx context.Context, node NodeRef) (HeartbeatRow, error) {
	return HeartbeatRow{}, errNotWritten
}
func (s *Store) FenceNode(ctx context.Context, lease LeaseRef, target NodeRef, count int64) error {
	return errNotWritten
}
func (s *Store) FenceSelf(ctx context.Context, node NodeRef) error       { return errNotWritten }
func (s *Store) SetSlots(ctx context.Context, id int64, slots int) error { return errNotWritten }
func (s *Store) Node(ctx context.Context, id int64) (NodeRow, error)     { return NodeRow{}, errNotWritten }
func (s *Store) Nodes(ctx context.Context) ([]NodeRow, error)            { return nil, errNotWritten }
func (s *Store) Heartbeats(ctx context.Context) (map[int64]HeartbeatRow, error) {
	return nil, errNotWritten
}
func (s *Store) VerifyNode(ctx context.Context, node NodeRef) error    { return errNotWritten }
func (s *Store) ConfirmFenced(ctx context.Context, node NodeRef) error { return errNotWritten }

func (s *Store) Lease(ctx context.Context, name string) (LeaseRow, error) {
	return LeaseRow{}, errNotWritten
}
func (s *Store) AcquireLease(ctx context.Context, by NodeRef, name string, seen LeaseRow) (LeaseRow, error) {
	return LeaseRow{}, errNotWritten
}
func (s *Store) RenewLease(ctx context.Context, lease LeaseRef) (LeaseRow, error) {
	return LeaseRow{}, errNotWritten
}
func (s *Store) ReleaseLease(ctx context.Context, lease LeaseRef) error { return errNotWritten }

// CreateTable says what table is wanted.
type CreateTable struct {
	Name      string
	UUID      uuid.UUID
	Kind      TableKind
	Buckets   int
	Options   map[string]string
	Leaders   []int64 // node id per bucket, placed by the caller; 0 or missing = none yet
	RequestID uuid.UUID
	At        time.Time
}

func (s *Store) CreateTable(ctx context.Context, by NodeRef, c CreateTable) (TableRow, []StreamRow, error) {
	return TableRow{}, nil, errNotWritten
}

// AddBuckets raises a table's buckets to target; leaders are those of the buckets from TableRow.Buckets on.
func (s *Store) AddBuckets(ctx context.Context, by NodeRef, table int64, target int, leaders []int64, requestID uuid.UUID) (TableRow, []StreamRow, error) {
	return TableRow{}, nil, errNotWritten
}
func (s *Store) AlterTable(ctx context.Context, by NodeRef, table int64, set map[string]string, remove []string, requestID uuid.UUID) (TableRow, error) {
	return TableRow{}, errNotWritten
}
func (s *Store) DeleteTable(ctx context.Context, by NodeRef, table int64, requestID uuid.UUID) error {
	return errNotWritten
}
func (s *Store) DestroyStreams(ctx context.Context, lease LeaseRef, limit int) (done int, more bool, err error) {
	return 0, false, errNotWritten
}
func (s *Store) Table(ctx context.Context, id int64) (TableRow, error) {
	return TableRow{}, errNotWritten
}
func (s *Store) TableByName(ctx context.Context, name string) (TableRow, error) {
	return TableRow{}, errNotWritten
}
func (s *Store) Tables(ctx context.Context, afterName string, limit int) ([]TableRow, error) {
	return nil, errNotWritten
}
func (s *Store) Streams(ctx context.Context, table int64) ([]StreamRow, error) {
	return nil, errNotWritten
}
func (s *Store) Stream(ctx context.Context, id int64) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}

// StreamOfBucket is the stream of one bucket.
func (s *Store) StreamOfBucket(ctx context.Context, table int64, bucket int) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}

// Owned lists the streams that node leads (0: those without a leader), in order of their ids, after a given one.
func (s *Store) Owned(ctx context.Context, node, after int64, limit int) ([]StreamRow, error) {
	return nil, errNotWritten
}

// Opened lists the streams that a node epoch has open, in order of their ids, after a given one.
func (s *Store) Opened(ctx context.Context, node NodeRef, after int64, limit int) ([]StreamRow, error) {
	return nil, errNotWritten
}

// Loads is how many streams each node leads (0: none leads).
func (s *Store) Loads(ctx context.Context) (map[int64]int64, error) { return nil, errNotWritten }

func (s *Store) LeadBucket(ctx context.Context, lease LeaseRef, stream, to, fromLeaderEpoch int64) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}
func (s *Store) LeadAgain(ctx context.Context, by NodeRef, stream, fromLeaderEpoch int64) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}
func (s *Store) OpenStream(ctx context.Context, by NodeRef, stream, leaderEpoch int64) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}
func (s *Store) CloseStream(ctx context.Context, by NodeRef, stream, epoch int64) error {
	return errNotWritten
}
func (s *Store) CloseStreamsOf(ctx context.Context, by, dead NodeRef, limit int) (closed []int64, more bool, err error) {
	return nil, false, errNotWritten
}
func (s *Store) EndStream(ctx context.Context, by NodeRef, stream, epoch, end int64) error {
	return errNotWritten
}

// TrimStream moves the start. A start beyond the durable end is cut to it: the row that is returned tells. more: call again.
func (s *Store) TrimStream(ctx context.Context, by NodeRef, stream, epoch, start int64) (row StreamRow, more bool, err error) {
	return StreamRow{}, false, errNotWritten
}

func (s *Store) BeginTransfer(ctx context.Context, by NodeRef, stream, to, fromLeaderEpoch int64, at time.Time) (TransferRow, error) {
	return TransferRow{}, errNotWritten
}

// CompleteTransfer makes the target the leader, by the source that has closed the stream at epoch.
func (s *Store) CompleteTransfer(ctx context.Context, by NodeRef, stream, epoch int64) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}
func (s *Store) CancelTransfer(ctx context.Context, by NodeRef, transfer TransferRow) error {
	return errNotWritten
}
func (s *Store) Transfers(ctx context.Context) ([]TransferRow, error) { return nil, errNotWritten }

func (s *Store) WAL(ctx context.Context, node NodeRef) (WALRow, error) {
	return WALRow{}, errNotWritten
}
func (s *Store) WALs(ctx context.Context, node int64) ([]WALRow, error) { return nil, errNotWritten }
func (s *Store) PutInline(ctx context.Context, node NodeRef, seq int64, segment []byte) error {
	return errNotWritten
}
func (s *Store) InlineSegments(ctx context.Context, node NodeRef, from int64, limitBytes int) ([]InlineSegment, error) {
	return nil, errNotWritten
}
func (s *Store) CommitPack(ctx context.Context, p Pack) error                  { return errNotWritten }
func (s *Store) Adopt(ctx context.Context, by NodeRef, a Adoption) error       { return errNotWritten }
func (s *Store) SealWAL(ctx context.Context, by, dead NodeRef, at int64) error { return errNotWritten }
func (s *Store) FinishWAL(ctx context.Context, by, dead NodeRef) error         { return errNotWritten }
func (s *Store) Prepare(ctx context.Context, node NodeRef, objects []string, at time.Time) error {
	return errNotWritten
}

// ObjectEntries lists the index from the first entry with End > from.
func (s *Store) ObjectEntries(ctx context.Context, stream, from int64, limit int) ([]ObjectEntry, error) {
	return nil, errNotWritten
}
func (s *Store) LastEntry(ctx context.Context, stream int64) (ObjectEntry, bool, error) {
	return ObjectEntry{}, false, errNotWritten
}
func (s *Store) DurableEnd(ctx context.Context, stream int64) (int64, error) { return 0, errNotWritten }
func (s *Store) ObjectMeta(ctx context.Context, object string) (ObjectMeta, bool, error) {
	return ObjectMeta{}, false, errNotWritten
}
func (s *Store) MergeEntries(ctx context.Context, node NodeRef, stream, epoch int64, old []ObjectEntry, merged ObjectEntry, object ObjectMeta, at time.Time) error {
	return errNotWritten
}
func (s *Store) ExpirePrepared(ctx context.Context, lease LeaseRef, before time.Time, limit int) (int, error) {
	return 0, errNotWritten
}
func (s *Store) DestroyQueue(ctx context.Context, limit int, before time.Time) ([]Doomed, error) {
	return nil, errNotWritten
}
func (s *Store) Destroyed(ctx context.Context, lease LeaseRef, doomed []Doomed) error {
	return errNotWritten
}
func (s *Store) Producers(ctx context.Context, stream int64) ([]ProducerState, error) {
	return nil, errNotWritten
}
func (s *Store) ForgetProducers(ctx context.Context, node NodeRef, stream, epoch int64, producers []int64) error {
	return errNotWritten
}

func (s *Store) ReadLog(ctx context.Context, after tuple.Versionstamp, limit int) ([]LogRecord, error) {
	return nil, errNotWritten
}

// TrimLog removes records so that the newest keep remain, at most limit of them in this call; more: call again.
func (s *Store) TrimLog(ctx context.Context, lease LeaseRef, before tuple.Versionstamp) error {
	return errNotWritten
}

// InspectOptions choose rows.
type InspectOptions struct {
	Keyspace string
	Stream   int64 // 0 = all
	Node     int64 // 0 = all
	Limit    int   // rows, 0 = all
}

// InspectRow is one row, decoded.
type InspectRow struct {
	Keyspace string
	Key      tuple.Tuple
	Value    string // decoded, for people
	Raw      []byte
	Err      error // why it does not decode
}

func (s *Store) Inspect(ctx context.Context, o InspectOptions, fn func(InspectRow) error) error {
	return errNotWritten
}

// Problem is a broken invariant.
type Problem struct {
	Kind   string
	Key    string
	Detail string
}

func (s *Store) Check(ctx context.Context, fn func(Problem)) error { return errNotWritten }

// ViewOptions configure a View.
type ViewOptions struct {
	Node       int64         // whose streams are kept
	Poll       time.Duration // how often the log is read without a watch firing; default 1 s
	MaxStreams int           // how many streams of others are kept; default 10,000
	Logger     *slog.Logger
}

// View is a node's cached picture of the metadata.
type View struct{}

func NewView(store *Store, options ViewOptions) *View     { return &View{} }
func (v *View) Run(ctx context.Context) error             { return errNotWritten }
func (v *View) Sync(ctx context.Context) error            { return errNotWritten }
func (v *View) Table(name string) (TableRow, bool)        { return TableRow{}, false }
func (v *View) TableByID(id int64) (TableRow, bool)       { return TableRow{}, false }
func (v *View) TableByUUID(id uuid.UUID) (TableRow, bool) { return TableRow{}, false }
func (v *View) Tables() []TableRow                        { return nil }
func (v *View) Node(id int64) (NodeRow, bool)             { return NodeRow{}, false }
func (v *View) Nodes() []NodeRow                          { return nil }
func (v *View) Lease(name string) (LeaseRow, bool)        { return LeaseRow{}, false }
func (v *View) Transfer(stream int64) (TransferRow, bool) { return TransferRow{}, false }
func (v *View) Transfers() []TransferRow                  { return nil }
func (v *View) Stream(ctx context.Context, id int64) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}
func (v *View) Bucket(ctx context.Context, table int64, bucket int) (StreamRow, error) {
	return StreamRow{}, errNotWritten
}

// Led lists the streams that the view's node leads or has open, by id.
func (v *View) Led() []StreamRow { return nil }

// Changed is closed at the next change.
func (v *View) Changed() <-chan struct{} { return nil }

// Version rises with every change.
func (v *View) Version() int64 { return 0 }
