package kvtest

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

func serializableChecks() []check {
	return []check{
		{"serializable/write skew", writeSkew},
		{"serializable/write skew over ranges", writeSkewOverRanges},
		{"serializable/counter by many clients", counterByManyClients},
		{"serializable/bank transfers", bankTransfers},
	}
}

// writeSkew: of two doctors on call, each may leave when the other stays.
func writeSkew(e *env) {
	e.set("alice", "on", "bob", "on")
	leave := func(who string) func(tx kv.Transaction) error {
		return func(tx kv.Transaction) error {
			alice, bob := tx.Get(b("alice")), tx.Get(b("bob"))
			first, err := alice.Get()
			if err != nil {
				return err
			}
			second, err := bob.Get()
			if err != nil {
				return err
			}
			if first != nil && second != nil {
				tx.Clear(b(who))
			}
			return nil
		}
	}
	require.Greater(e, e.interleaved(leave("alice"), leave("bob")), 1)
	require.Len(e, e.all(), 1, "one must stay")
}

// writeSkewOverRanges: each of two transactions takes a room if none is taken.
func writeSkewOverRanges(e *env) {
	take := func(room string) func(tx kv.Transaction) error {
		return func(tx kv.Transaction) error {
			taken, err := tx.GetRange(b("room/"), b("room0"), kv.RangeOptions{Limit: 1}).Get()
			if err == nil && len(taken) == 0 {
				tx.Set(b("room/"+room), b("taken"))
			}
			return err
		}
	}
	require.Greater(e, e.interleaved(take("1"), take("2")), 1)
	require.Len(e, e.all(), 1, "one room is taken")
}

func number(value []byte) (int, error) {
	if value == nil {
		return 0, nil
	}
	return strconv.Atoi(string(value))
}

func counterByManyClients(e *env) {
	const clients, rounds = 8, 8
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			for round := range rounds {
				_, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
					done, err := once(tx, fmt.Sprint(client, "-", round))
					if err != nil || done {
						return err
					}
					value, err := tx.Get(b("n")).Get()
					if err != nil {
						return err
					}
					n, err := number(value)
					tx.Set(b("n"), fmt.Append(nil, n+1))
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
	require.Equal(e, fmt.Sprint(clients*rounds), string(e.get("n")))
}

const (
	bankAccounts = 6
	bankBalance  = 100
)

// total reads all accounts at one version.
func total(tx kv.ReadTransaction) (int, error) {
	rows, err := tx.GetRange(b("account/"), b("account0"), kv.RangeOptions{}).Get()
	if err != nil {
		return 0, err
	}
	if len(rows) != bankAccounts {
		return 0, fmt.Errorf("%d accounts, want %d", len(rows), bankAccounts)
	}
	sum := 0
	for _, row := range rows {
		n, err := number(row.Value)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// bankTransfers moves money between accounts while readers add all of them up.
func bankTransfers(e *env) {
	e.write(func(tx kv.Transaction) {
		for i := range bankAccounts {
			tx.Set(fmt.Appendf(nil, "account/%d", i), fmt.Append(nil, bankBalance))
		}
	})
	var group errgroup.Group
	for client := range 6 {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			for round := range 20 {
				if err := transfer(e, fmt.Sprint(client, "-", round), random.IntN(bankAccounts), random.IntN(bankAccounts), random.IntN(30)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 2 {
		group.Go(func() error {
			for range 30 {
				err := e.db.ReadTransact(e.ctx, func(tx kv.ReadTransaction) error {
					sum, err := total(tx)
					if err == nil && sum != bankAccounts*bankBalance {
						return fmt.Errorf("the accounts have %d, want %d", sum, bankAccounts*bankBalance)
					}
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
	e.read(func(tx kv.ReadTransaction) error {
		sum, err := total(tx)
		if err == nil {
			require.Equal(e, bankAccounts*bankBalance, sum)
		}
		return err
	})
}

func transfer(e *env, id string, from, to, amount int) error {
	account := func(i int) []byte { return fmt.Appendf(nil, "account/%d", i) }
	_, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
		done, err := once(tx, id)
		if err != nil || done {
			return err
		}
		value, err := tx.Get(account(from)).Get()
		if err != nil {
			return err
		}
		balance, err := number(value)
		if err != nil || balance < amount {
			return err
		}
		tx.Set(account(from), fmt.Append(nil, balance-amount))
		if value, err = tx.Get(account(to)).Get(); err != nil { // its own write, when from is to
			return err
		}
		if balance, err = number(value); err != nil {
			return err
		}
		tx.Set(account(to), fmt.Append(nil, balance+amount))
		return nil
	})
	return err
}
