package ownership

import (
	"fmt"
	"testing"
)

// The newest of the removed Bundles are remembered.
func TestRemovedBundlesAreBounded(t *testing.T) {
	b := NewBook()
	for i := range maxBuried + 1 {
		b.ForgetBundle(fmt.Sprint(i), int64(i))
	}
	_, newest := b.buried[fmt.Sprint(maxBuried)]
	_, oldest := b.buried["0"]
	if n := len(b.buried); n > maxBuried || n < maxBuried*8/10 || !newest || oldest {
		t.Errorf("%d removed Bundles are remembered; the newest: %t, the oldest: %t", n, newest, oldest)
	}
}
