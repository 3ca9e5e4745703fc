package ownership

import (
	"fmt"
	"testing"
)

// The newest of the removed Bundles are remembered.
func TestRemovedBundlesAreBounded(t *testing.T) {
	b := NewOwnershipRecords()
	for i := range MaxRemoved + 1 {
		b.ForgetBundle(fmt.Sprint(i), int64(i))
	}
	_, newest := b.buried[fmt.Sprint(MaxRemoved)]
	_, oldest := b.buried["0"]
	if n := len(b.buried); n > MaxRemoved || n < MaxRemoved*8/10 || !newest || oldest {
		t.Errorf("%d removed Bundles are remembered; the newest: %t, the oldest: %t", n, newest, oldest)
	}
}
