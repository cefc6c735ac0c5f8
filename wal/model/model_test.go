package model

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var modeNames = map[int]string{both: "both", store: "store", layer: "layer"}

// TestProtocolHolds visits every state within the bounds. VARVE_MODEL=large widens them; it takes minutes.
func TestProtocolHolds(t *testing.T) {
	all := []int{both, store, layer}
	type exploration struct {
		bounds
		modes []int
	}
	explorations := []exploration{
		{bounds{segments: 2, recoverers: 2, late: 1}, all},
		{bounds{segments: 3, recoverers: 1, late: 1}, []int{both, layer}}, // what mode store can do, both can
	}
	if os.Getenv("VARVE_MODEL") == "large" {
		explorations = []exploration{{bounds{segments: 2, recoverers: 2, late: 2}, all}, {bounds{segments: 3, recoverers: 2, late: 1}, all}}
	}
	for _, x := range explorations {
		for _, mode := range x.modes {
			t.Run(fmt.Sprintf("%s, %+v", modeNames[mode], x.bounds), func(t *testing.T) {
				got := explore(mode, nothing, x.bounds)
				got.log(t)
				require.Empty(t, got.violation)
				for k := 0; k <= x.segments; k++ {
					require.NotZero(t, got.ends[k], "the log never ends at %d", k)
				}
				require.NotZero(t, got.acknowledged, "nothing is acknowledged")
			})
		}
	}
}

// TestEveryRuleIsNeeded: leaving out a rule breaks a promise, in at least the modes named, and the model finds it.
func TestEveryRuleIsNeeded(t *testing.T) {
	cases := []struct {
		name  string
		omit  omission
		modes []int
	}{
		{"acknowledgements out of order", ackOutOfOrder, []int{both, store, layer}},
		{"a seal that may be deleted", sealsMayBeDeleted, []int{both, store}},
		{"an end of recovery without its condition", endWithoutCondition, []int{both, store, layer}},
		{"a verify read made before the put", verifyBeforePut, []int{layer}},
		{"no verify read", noVerify, []int{layer}},
		{"an inline commit without the node check", inlineWithoutNodeCheck, []int{both, store, layer}},
		{"a recovery before the fence is confirmed", recoverBeforeFence, []int{both, store, layer}},
		{"a refused put taken for the own one", refusedMeansOwn, []int{both, store}},
		{"an adoption without its condition", takeWithoutCondition, []int{both, store, layer}},
		{"a recoverer that does not look for inline rows", noInlineLook, []int{both, store, layer}},
		{"a seal put without its condition", unconditionalSeal, []int{both, store}},
	}
	for _, c := range cases {
		for _, mode := range c.modes {
			t.Run(c.name+", "+modeNames[mode], func(t *testing.T) {
				got := explore(mode, c.omit, bounds{segments: 2, recoverers: 2, late: 1})
				got.log(t)
				require.NotEmpty(t, got.violation)
			})
		}
	}
}
