package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/command/client"
)

// A member's answers are asked for by the hub's path, as the same user, and end at a bound.
func TestConnectMember(t *testing.T) {
	block := []byte(strings.Repeat("x", 1<<20))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hub/apis/atoll.dev/v1alpha1/clusters/tokyo-1/proxy/small" && r.Header.Get("Authorization") == "Bearer mine" {
			_, _ = w.Write([]byte("ok")) // the client has gone
			return
		}
		for range 300 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	hub := &client.Connection{Config: &rest.Config{Host: server.URL + "/hub/", BearerToken: "mine"}}
	member, err := hub.ConnectMember("tokyo-1")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) (string, error) {
		raw, err := client.ReadAnswer(member.REST.Get().AbsPath(path).Do(context.Background()))
		return string(raw), err
	}
	if got, err := ask("/small"); err != nil || got != "ok" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ask("/large"); err == nil || !strings.Contains(err.Error(), "cluster tokyo-1 answers with more than 256 MiB") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := ask("/small"); err == nil {
		t.Error("the bound holds for one answer alone")
	}
	for _, name := range []string{"", "..", "a/b", "../../x", "Tokyo", "a?b"} {
		if _, err := hub.ConnectMember(name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
