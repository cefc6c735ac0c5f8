package kvtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

func historyChecks() []check {
	return []check{
		{"history/replayed in commit order", replayInCommitOrder},
		{"history/linearizable", linearizable},
	}
}

// step is one operation of a recorded transaction with what it returned.
type step struct {
	kind       string
	key, end   string
	value      string
	options    kv.RangeOptions
	seen       []string // of reads
	seenAbsent bool
}

// recorded is one run of a transaction that was committed.
type recorded struct {
	stamp kv.Versionstamp
	steps []step
}

// replayInCommitOrder runs random transactions from many clients and then runs those that were committed one after the other, in the order of their
// versionstamps, on a model: each must read the same again. This is strict serializability in the order that versionstamps claim.
func replayInCommitOrder(e *env) {
	seed := uint64(time.Now().UnixNano())
	e.Logf("seed %d", seed)
	const clients, rounds = 8, 25
	var mu sync.Mutex
	runs := map[string][]step{} // by transaction and run
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			for round := range rounds {
				id := fmt.Sprintf("%02d-%03d", client, round)
				run := 0
				_, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
					marker, err := tx.Get(b("marker/" + id)).Get()
					if err != nil || marker != nil {
						return err // an earlier run was committed after all
					}
					run++
					// The marker tells which run was committed, and where.
					tx.SetVersionstampedValue(b("marker/"+id), append(binary.BigEndian.AppendUint64(make([]byte, 10), uint64(run)), 0, 0, 0, 0))
					steps, err := randomSteps(tx, random)
					mu.Lock()
					defer mu.Unlock()
					runs[fmt.Sprint(id, "/", run)] = steps
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(e, group.Wait())

	var history []recorded
	e.read(func(tx kv.ReadTransaction) error {
		history = nil
		markers, err := tx.GetRange(b("marker/"), b("marker0"), kv.RangeOptions{}).Get()
		for _, row := range markers {
			id := string(bytes.TrimPrefix(row.Key, b("marker/")))
			history = append(history, recorded{
				stamp: kv.Versionstamp(row.Value[:10]),
				steps: runs[fmt.Sprint(id, "/", binary.BigEndian.Uint64(row.Value[10:]))],
			})
		}
		return err
	})
	require.Len(e, history, clients*rounds)
	slices.SortFunc(history, func(x, y recorded) int { return bytes.Compare(x.stamp[:], y.stamp[:]) })
	replay(e, history)
}

// randomSteps does a few random operations on a few keys.
func randomSteps(tx kv.Transaction, random *rand.Rand) ([]step, error) {
	var steps []step
	key := func() string { return fmt.Sprintf("row/%02d", random.IntN(20)) }
	for range 1 + random.IntN(5) {
		s := step{key: key(), end: key()}
		switch random.IntN(7) {
		case 0, 1:
			s.kind = "get"
			value, err := tx.Get(b(s.key)).Get()
			if err != nil {
				return nil, err
			}
			s.seen, s.seenAbsent = []string{string(value)}, value == nil
		case 2, 3:
			s.kind = "range"
			s.options = kv.RangeOptions{Limit: random.IntN(4), Reverse: random.IntN(2) == 0}
			rows, err := tx.GetRange(b(s.key), b(s.end), s.options).Get()
			if err != nil {
				return nil, err
			}
			s.seen = texts(rows)
		case 4:
			s.kind = "set"
			s.value = fmt.Sprint(random.IntN(1000))
			tx.Set(b(s.key), b(s.value))
		case 5:
			s.kind = "add"
			s.value = string([]byte{byte(random.IntN(256)), 0, 1})
			tx.Add(b(s.key), b(s.value))
		case 6:
			s.kind = "clear"
			s.end = min(max(s.key, s.end), s.key+"~")
			tx.ClearRange(b(s.key), b(s.end))
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// replay runs the transactions in order on a map.
func replay(e *env, history []recorded) {
	model := map[string]string{}
	for i, r := range history {
		if i > 0 {
			require.NotEqual(e, history[i-1].stamp, r.stamp, "two transactions with one versionstamp")
		}
		for _, s := range r.steps {
			switch s.kind {
			case "get":
				value, present := model[s.key]
				require.Equal(e, []string{value}, s.seen, "transaction %d at %x: get of %s", i, r.stamp, s.key)
				require.Equal(e, !present, s.seenAbsent, "transaction %d at %x: presence of %s", i, r.stamp, s.key)
			case "range":
				require.Equal(e, modelRows(model, s.key, s.end, s.options), s.seen, "transaction %d at %x: range %s to %s with %+v", i, r.stamp, s.key, s.end, s.options)
			case "set":
				model[s.key] = s.value
			case "add":
				model[s.key] = modelAdd(model[s.key], b(s.value))
			case "clear":
				for key := range model {
					if s.key <= key && key < s.end {
						delete(model, key)
					}
				}
			}
		}
	}
	var rows []kv.KeyValue
	e.read(func(tx kv.ReadTransaction) (err error) {
		rows, err = tx.GetRange(b("row/"), b("row0"), kv.RangeOptions{}).Get()
		return err
	})
	require.Equal(e, modelRows(model, "row/", "row0", kv.RangeOptions{}), texts(rows), "the rows at the end")
}

// registerInput is an operation on one register; registerOutput what it returned.
type registerInput struct {
	key      string
	op       string // get, set, swap
	expected string // of swap
	value    string // of set and swap
}

type registerOutput struct {
	value   string // of get
	swapped bool   // of swap
}

func registerModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(registerInput).key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			in, out := input.(registerInput), output.(registerOutput)
			switch in.op {
			case "set":
				return true, in.value
			case "swap":
				if out.swapped {
					return state == in.expected, in.value
				}
				return state != in.expected, state
			}
			return out.value == state, state
		},
	}
}

// linearizable has many clients get, set and compare-and-swap registers, and checks their history with porcupine.
func linearizable(e *env) {
	seed := uint64(time.Now().UnixNano())
	e.Logf("seed %d", seed)
	const clients, rounds, keys = 10, 30, 3
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			for round := range rounds {
				in := registerInput{
					key:   fmt.Sprint("register/", random.IntN(keys)),
					op:    []string{"get", "get", "set", "swap"}[random.IntN(4)],
					value: fmt.Sprint(random.IntN(4)), expected: fmt.Sprint(random.IntN(4)),
				}
				call := time.Since(start)
				out, err := operate(e, in, fmt.Sprint(client, "-", round))
				if err != nil {
					return err
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(time.Since(start))})
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(e, group.Wait())
	require.Equal(e, porcupine.Ok, porcupine.CheckOperationsTimeout(registerModel(), history, patience), "the history is not linearizable")
}

// operate does one operation. A compare-and-swap remembers its answer in its own row, in case its commit is unknown.
func operate(e *env, in registerInput, id string) (out registerOutput, err error) {
	if in.op == "get" {
		err = e.db.ReadTransact(e.ctx, func(tx kv.ReadTransaction) error {
			value, err := tx.Get(b(in.key)).Get()
			out = registerOutput{value: string(value)}
			return err
		})
		return out, err
	}
	_, err = e.db.Transact(e.ctx, func(tx kv.Transaction) error {
		answer, err := tx.Get(b("answer/" + id)).Get()
		if err != nil {
			return err
		}
		if answer != nil {
			out = registerOutput{swapped: string(answer) == "swapped"}
			return nil
		}
		out = registerOutput{}
		if in.op == "swap" {
			value, err := tx.Get(b(in.key)).Get()
			if err != nil {
				return err
			}
			out.swapped = string(value) == in.expected
		}
		if in.op == "set" || out.swapped {
			tx.Set(b(in.key), b(in.value))
		}
		if out.swapped {
			tx.Set(b("answer/"+id), b("swapped"))
		} else {
			tx.Set(b("answer/"+id), b("not swapped"))
		}
		return nil
	})
	return out, err
}
