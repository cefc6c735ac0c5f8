package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/integration/history"
	"github.com/varvedb/varve/integration/load"
	"github.com/varvedb/varve/integration/process"
	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

// breakVariable names the rule that a binary built with the tag varve_broken leaves out.
const breakVariable = "VARVE_BREAK"

// brokenTries is how often a scenario is played until a rule that is left out must have shown.
const brokenTries = 6

// TestBrokenBuildsAreNoticed plays, for rules that keep records safe, a scenario in which the rule matters: with the binary under test, of which nothing
// wrong is found, and with one that leaves the rule out, which the check of the history must report.
func TestBrokenBuildsAreNoticed(t *testing.T) {
	program, err := os.ReadFile(binary)
	require.NoError(t, err)
	require.False(t, bytes.Contains(program, []byte(breakVariable)), "the binary under test can be told to leave rules out")
	broken, err := process.BuildBroken(t.TempDir())
	require.NoError(t, err)
	for _, c := range []struct {
		name, rule string
		flags      []string
		play       func(*scenario)
	}{
		{"inline segments are fenced", "fence", []string{"--wal-inline-max", "512KiB"}, zombieSeesMetadata},
		{"object segments are verified", "fence", []string{"--wal-inline-max", "-1", "--wal-fence", "layer"}, zombieIsCutOff},
		{"logs are sealed", "seal", []string{"--wal-inline-max", "-1", "--wal-fence", "store"}, zombieIsCutOff},
		{"acknowledged is durable", "ack", []string{"--wal-inline-max", "-1"}, killedAfterAcknowledging},
		{"one leader writes", "epoch", []string{"--wal-inline-max", "512KiB"}, ledElsewhereWhileOpen},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Empty(t, play(t, binary, "", c.flags, c.play), "the rule is kept")
			for try := range brokenTries {
				if problems := play(t, broken, c.rule, c.flags, c.play); len(problems) > 0 {
					t.Logf("try %d without the rule %q: %d problems, the first: %s", try, c.rule, len(problems), problems[0])
					return
				}
			}
			t.Errorf("without the rule %q nothing was found in %d tries", c.rule, brokenTries)
		})
	}
}

// scenario is a cluster with a stream of which every append and its acknowledgement is recorded.
type scenario struct {
	*testing.T
	cluster *process.Cluster
	proxies []process.Proxies
	stream  *history.Stream
	appends atomic.Int64
	pending sync.WaitGroup
}

// play starts a cluster, plays a scenario, and gives what the check of the history finds.
func play(t *testing.T, binary, rule string, flags []string, scene func(*scenario)) (problems []string) {
	t.Run(fmt.Sprintf("break=%s", rule), func(t *testing.T) {
		s := &scenario{T: t, stream: history.New("rooms/broken")}
		s.cluster, s.proxies = process.NewProxiedCluster(t, 3, process.Options{
			Binary: binary, Storage: objectstest.S3Server(t), Embedded: true,
			Env: []string{"AWS_ACCESS_KEY_ID=" + objectstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + objectstest.SecretKey, breakVariable + "=" + rule},
			Args: append([]string{
				"--heartbeat-interval", "500ms", "--node-timeout", "2s", "--lease-ttl", "1500ms", "--detector-interval", "250ms", "--coordinator-tick", "500ms",
				"--sync-interval", "1s", "--pack-interval", "10m", "--merge-interval", "0s",
			}, flags...),
		})
		s.cluster.Start()
		require.NoError(t, load.CreateJSONStream(t.Context(), func() string { return s.cluster.Nodes[0].HTTP }, s.stream.Name))
		s.cluster.AwaitServed([]string{s.stream.Name})
		scene(s)
		s.pending.Wait()
		problems = s.check(rule == "")
	})
	return problems
}

func (s *scenario) leader() *process.Node { return leader(s.T, s.cluster, s.stream.Name, 0) }

// append sends appends to a node, all at once, each of which is a writer of its own.
func (s *scenario) append(to *process.Node, count int) {
	for range count {
		writer := fmt.Sprint("w", s.appends.Add(1))
		s.pending.Go(func() {
			ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
			defer cancel()
			if offset, err := appendOnce(ctx, to, s.stream.Name, history.Value(writer, 0)); err == nil {
				s.stream.Acknowledged(history.Ack{Writer: writer, Offset: offset})
			}
		})
	}
}

// appendOnce appends a value and gives its offset. It goes where it is redirected to.
func appendOnce(ctx context.Context, to *process.Node, stream, value string) (int64, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.HTTP+"/v1/stream/"+stream, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		return 0, fmt.Errorf("%s %s: %w", answer.Status, text, err)
	}
	next, err := strconv.ParseInt(answer.Header.Get("Stream-Next-Offset"), 10, 64)
	return next - 1, err
}

// appendUntil appends to a node until so many more appends are acknowledged. A node that has just opened the stream may refuse some.
func (s *scenario) appendUntil(to *process.Node, more int) {
	want := s.stream.Acks() + more
	s.append(to, more)
	again := time.Now().Add(time.Second)
	s.cluster.Await(fmt.Sprint(want, " acknowledged appends"), func() bool {
		if time.Now().After(again) {
			s.append(to, more)
			again = time.Now().Add(time.Second)
		}
		return s.stream.Acks() >= want
	})
}

// check reads the stream and compares. A broken cluster may not be able to read it, which is a problem, but not one that the check found.
func (s *scenario) check(sound bool) []string {
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	for {
		final, err := load.ReadStream(ctx, func() string { return s.leader().HTTP }, s.stream.Name)
		if err == nil {
			s.Logf("%d records, %d acknowledged", len(final), s.stream.Acks())
			require.NotZero(s, s.stream.Acks())
			return s.stream.Check(final)
		}
		if ctx.Err() != nil {
			require.False(s, sound, "the stream cannot be read: %v", err)
			s.Logf("the stream cannot be read: %v", err)
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// failOver moves the stream from a leader that is paused, while appends wait in its sockets.
func (s *scenario) failOver() (zombie *process.Node) {
	zombie = s.leader()
	s.appendUntil(zombie, 5)
	zombie.Pause()
	s.append(zombie, 20)
	s.cluster.AwaitServed([]string{s.stream.Name}, zombie)
	s.appendUntil(leaderBut(s, zombie), 5)
	return zombie
}

func leaderBut(s *scenario, not *process.Node) *process.Node {
	streams, err := s.cluster.Streams(s.stream.Name, not)
	require.NoError(s, err)
	return s.cluster.Node(streams[0].Leader)
}

// zombieSeesMetadata: a paused leader whose stream has moved goes on; it can find out about that at once.
func zombieSeesMetadata(s *scenario) {
	zombie := s.failOver()
	zombie.Signal(syscall.SIGCONT)
	require.Equal(s, exitFenced, zombie.ExitCode())
}

// zombieIsCutOff: a paused leader whose stream has moved goes on, and can ask the object store alone.
func zombieIsCutOff(s *scenario) {
	zombie := s.failOver()
	metadata := s.proxies[zombie.ID()-1].Metadata
	metadata.Freeze()
	zombie.Signal(syscall.SIGCONT)
	s.settle(zombie)
	metadata.Heal()
	require.Equal(s, exitFenced, zombie.ExitCode())
}

// settle waits until a zombie has had time to acknowledge: it has ended, or was idle for a while.
func (s *scenario) settle(zombie *process.Node) {
	select {
	case <-zombie.Exited():
	case <-time.After(2 * time.Second):
	}
}

// killedAfterAcknowledging: the object store is slow, and the leader is killed just after it has acknowledged.
func killedAfterAcknowledging(s *scenario) {
	victim := s.leader()
	s.appendUntil(victim, 2)
	s.proxies[victim.ID()-1].Objects.Slow(400 * time.Millisecond)
	acks := s.stream.Acks()
	s.append(victim, 20)
	s.cluster.Await("one of them is acknowledged", func() bool { return s.stream.Acks() > acks })
	s.proxies[victim.ID()-1].Objects.Cut() // what is on its way is lost
	victim.Kill()
	s.cluster.AwaitServed([]string{s.stream.Name}, victim)
	s.appendUntil(leaderBut(s, victim), 5)
}

// ledElsewhereWhileOpen: a coordinator gives a stream that is open, with records that lie only in its leader's log, to another leader. The one of before takes its time to close it.
func ledElsewhereWhileOpen(s *scenario) {
	old := s.leader()
	s.appendUntil(old, 10)
	s.proxies[old.ID()-1].Objects.Slow(300 * time.Millisecond)
	metadata, err := layer.New(s.cluster.Engine(), "varve")
	require.NoError(s, err)
	lease, err := metadata.Lease(s.Context(), layer.CoordinatorLease)
	require.NoError(s, err)
	streams, err := s.cluster.Streams(s.stream.Name)
	require.NoError(s, err)
	to := s.cluster.Node(old.ID()%3 + 1)
	_, err = metadata.LeadBucket(s.Context(), lease.Ref(), streams[0].Stream, to.ID(), streams[0].LeaderEpoch)
	require.NoError(s, err)
	s.append(old, 10) // some of them before it has noticed
	s.cluster.AwaitServed([]string{s.stream.Name}, old)
	s.appendUntil(to, 10)
}
