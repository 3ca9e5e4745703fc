package lease

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// TestALeaseThatIsGivenBackIsNotHeld: from before the member has it, since another agent may
// work from then on.
func TestALeaseThatIsGivenBackIsNotHeld(t *testing.T) {
	var l *Lease
	var given atomic.Bool
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me")}}
		lease.APIVersion, lease.Kind = "coordination.k8s.io/v1", "Lease"
		if r.Method == http.MethodPut {
			if given.Store(true); l.IsHeld() {
				t.Error("the lease is held although another one may have it")
			}
		} else if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(lease) // the requester may have gone
	}))
	defer member.Close()
	l, err := New(&rest.Config{Host: member.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "ns", "me", func(error) {}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.create(t.Context(), time.Now()); err != nil || !l.IsHeld() {
		t.Fatalf("made, and held %v: %v", l.IsHeld(), err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := l.KeepRenewing(ctx); err != nil || !given.Load() {
		t.Fatalf("given back %v: %v", given.Load(), err)
	}
}
