package payloads

import (
	"runtime"
	"testing"
	"testing/synctest"

	"atoll.dev/atoll/internal/atoll"
)

// A row is rendered in a slot of its namespace, and reading its input takes none.
func TestARowIsRenderedInASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestRenderer(newTestTables())
		in, err := r.ReadManifestInput(t.Context(), testRow("tokyo"))
		if err != nil {
			t.Fatal(err)
		}
		var release []func()
		for range runtime.GOMAXPROCS(0) {
			release = append(release, r.slots.Acquire("other"))
		}
		rendered := make(chan error, 1)
		go func() {
			_, err := r.RenderManifest(t.Context(), in)
			rendered <- err
		}()
		synctest.Wait()
		if len(rendered) > 0 {
			t.Fatal("a row is rendered without a slot")
		}
		for _, f := range release {
			f()
		}
		if err := <-rendered; err != nil {
			t.Error(err)
		}
		r.slots.Acquire("later")() // the slot is free again
	})
}

// A panic outside of a single object is the error of the row.
func TestAPanicIsTheRowsError(t *testing.T) {
	r := newTestRenderer(newTestTables())
	in, err := r.ReadManifestInput(t.Context(), testRow("tokyo"))
	if err != nil {
		t.Fatal(err)
	}
	in.content.Rules = []atoll.Rule{{}}
	r.compiled.Add(in.Row.Revision, &compiledRevision{})
	if _, err := r.RenderManifest(t.Context(), in); err == nil {
		t.Error("no error")
	}
}
