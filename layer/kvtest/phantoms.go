package kvtest

import (
	"github.com/varvedb/varve/layer/kv"
)

func phantomChecks() []check {
	return []check{
		{"phantoms/in a whole range", phantomsInWholeRange},
		{"phantoms/in an empty range", phantomsInEmptyRange},
		{"phantoms/within and beyond a limit", phantomsAndLimits},
		{"phantoms/within and beyond a limit in reverse", phantomsAndLimitsInReverse},
	}
}

// rowsForPhantoms starts afresh with the rows b, d, f and h.
func rowsForPhantoms(e *env) {
	e.write(func(tx kv.Transaction) {
		tx.ClearRange(nil, b("\xff"))
		for _, key := range []string{"b", "d", "f", "h"} {
			tx.Set(b(key), b("x"))
		}
	})
}

// conflicts checks which keys conflict with body when another transaction sets them.
func conflicts(e *env, body func(tx kv.Transaction) error, conflicting, free []string) {
	for _, key := range conflicting {
		rowsForPhantoms(e)
		e.mustConflict(body, setKey(key, "phantom"), "the other set "+key+", which is in the part that was read")
	}
	for _, key := range free {
		rowsForPhantoms(e)
		e.mustNotConflict(body, setKey(key, "phantom"), "the other set "+key+", which is outside the part that was read")
	}
}

func phantomsInWholeRange(e *env) {
	for _, options := range []kv.RangeOptions{{}, {Reverse: true}, {Limit: 100}, {Limit: 100, Reverse: true}, {Limit: 5}} {
		conflicts(e, readRange("a", "i", options), []string{"a", "aa", "b", "c", "h", "hh"}, []string{"", "i", "j"})
	}
	rowsForPhantoms(e)
	e.mustConflict(readRange("a", "i", kv.RangeOptions{}), func(tx kv.Transaction) error {
		tx.Clear(b("d"))
		return nil
	}, "a row that it read was cleared")
}

func phantomsInEmptyRange(e *env) {
	conflicts(e, readRange("bb", "cc", kv.RangeOptions{}), []string{"bb", "c"}, []string{"b", "cc", "d"})
	conflicts(e, readRange("bb", "cc", kv.RangeOptions{Limit: 1}), []string{"bb", "c"}, []string{"b", "cc", "d"})
}

func phantomsAndLimits(e *env) {
	// Reads b and d.
	conflicts(e, readRange("a", "z", kv.RangeOptions{Limit: 2}), []string{"a", "b", "c", "d"}, []string{"d\x00", "e", "f", "y"})
}

func phantomsAndLimitsInReverse(e *env) {
	// Reads h and f.
	conflicts(e, readRange("a", "z", kv.RangeOptions{Limit: 2, Reverse: true}), []string{"f", "g", "h", "y"}, []string{"a", "b", "e", "e\xff"})
}
