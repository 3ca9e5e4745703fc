package apply

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// handlerTransport answers requests by a handler, without a network.
type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// deleteLater accepts deletions of a path, and leaves the object until the test deletes it.
func deleteLater(api http.Handler, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && r.URL.Path == path {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
			return
		}
		api.ServeHTTP(w, r)
	})
}

// A namespace that is gone blocks no longer: its end is reported before the next namespace is gone.
func TestTheEndOfEachBlockerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: blog, uid: n0, deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [x.dev/keep]}")
		const blog = "/api/v1/namespaces/blog"
		client, err := member.New(&rest.Config{Host: "http://member", Transport: handlerTransport{deleteLater(api, blog)}, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.DiscoverAPIs(t.Context()); err != nil {
			t.Fatal(err)
		}
		blogNamespace := shopNamespace
		blogNamespace.Key, blogNamespace.UID = atoll.NamespaceKey("blog"), "n0"
		e := New(Options{
			Client: client, Store: memory{}, Watch: memory{}, Lease: heldLease(func() bool { return true }),
			Policy: func() *policy.Policy { return nil }, Changed: func(string) {}, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
		}, store.StoredContents{Records: []ownership.Record{blogNamespace, shopNamespace}})
		var reported []string
		ctx := t.Context()
		done := make(chan error, 1)
		go func() {
			_, err := e.ReleaseAll(ctx, true, func(why string) { reported = append(reported, why) })
			done <- err
		}()
		work := func(ns string) {
			e.finishWork(ctx, atoll.NamespaceKey(ns), e.workOnKey(ctx, atoll.NamespaceKey(ns)))
		}
		synctest.Wait()
		work("blog")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(reported) != 1 || !strings.Contains(reported[0], "Namespace blog") {
			t.Errorf("while blog is deleted, %q is reported", reported)
		}
		api.mu.Lock()
		delete(api.objects, blog)
		api.mu.Unlock()
		work("blog")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(reported) != 2 || reported[1] != "" {
			t.Errorf("after blog is gone, %q is reported", reported)
		}
		work("shop")
		if err := <-done; err != nil {
			t.Error(err)
		}
		if api.objects["/api/v1/namespaces/shop"] != nil {
			t.Error("shop is left")
		}
	})
}
