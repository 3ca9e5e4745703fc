package e2e

import (
	"context"
	"testing"
)

// takeDown kills a component of the lab. It runs again when the test ends, however it does, so
// that those that follow do not fail with it.
func takeDown(t *testing.T, component string) {
	t.Helper()
	t.Cleanup(func() {
		if err := sharedWorld.lab.StartComponent(context.WithoutCancel(t.Context()), component); err != nil {
			t.Error(err)
		}
	})
	if err := sharedWorld.lab.KillComponent(t.Context(), component); err != nil {
		t.Fatal(err)
	}
}

// bringBack starts a component that was taken down.
func bringBack(t *testing.T, component string) {
	t.Helper()
	if err := sharedWorld.lab.StartComponent(t.Context(), component); err != nil {
		t.Fatal(err)
	}
}
