package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/memberproxy"
)

// TestNobodyTakesAllOfAnAgent: however many watches one user opens, others are answered, and
// so is he where he ends one.
func TestNobodyTakesAllOfAnAgent(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(agent.Close)
	away := false
	f := New(Options{Reach: memberproxy.New(memberproxy.Options{Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		if away {
			return nil, net.ErrClosed
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", agent.Listener.Addr().String())
	}})})
	at := func(cluster string) *member {
		c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
		c.Name, c.UID = cluster, "uid"
		return &member{Cluster: c}
	}
	jane, _ := whoAsks(t, "jane", "shop")
	joe, _ := whoAsks(t, "joe", "shop")
	var open []*http.Response
	ask := func(who context.Context, cluster string) error {
		answer, err := f.requestFromMember(who, at(cluster), "/api/v1/pods", nil)
		if err == nil {
			open = append(open, answer)
		}
		return err
	}
	for i := range f.o.Reach.MaxRequestsPerUser() {
		if err := ask(jane, "oslo"); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	if err := ask(jane, "oslo"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more: %v", err)
	}
	if err := ask(jane, "rome"); err != nil {
		t.Errorf("another cluster: %v", err)
	}
	if err := ask(joe, "oslo"); err != nil {
		t.Errorf("another user: %v", err)
	}
	open[0].Body.Close()
	if err := ask(jane, "oslo"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	for _, answer := range open {
		answer.Body.Close() // the first one again
	}
	away = true
	if err := ask(jane, "oslo"); err == nil {
		t.Error("an agent that is away answers")
	}
	if len(f.shares.usedShares) != 0 {
		t.Errorf("left of all: %v", f.shares.usedShares)
	}
}
