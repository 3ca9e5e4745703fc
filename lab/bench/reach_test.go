package bench

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestGetsInTurn: each reads as often as the other and begins as often, by one connection,
// and the results are not mixed.
func TestGetsInTurn(t *testing.T) {
	const n, slow = 6, 20 * time.Millisecond // of b
	var order strings.Builder
	from := map[string]bool{}
	getterAt := func(name string) *repeatedGetter {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			order.WriteString(name)
			from[name+r.RemoteAddr] = true
			if name == "b" {
				<-time.After(slow)
			}
		}))
		t.Cleanup(server.Close)
		g, err := newRepeatedGetter(&rest.Config{Host: server.URL}, "/")
		if err != nil {
			t.Fatal(err)
		}
		// The default transport would share connections with other tests.
		g.httpClient.Transport = &http.Transport{}
		return g
	}
	as, bs, err := getInTurn(t.Context(), getterAt("a"), getterAt("b"), n)
	if err != nil || len(as) != n || len(bs) != n {
		t.Fatalf("%d and %d, %v", len(as), len(bs), err)
	}
	if got := order.String(); got != strings.Repeat("abba", n/2) {
		t.Errorf("they are asked in the order %s", got)
	}
	if len(from) != 2 {
		t.Errorf("they are asked by %d connections: %v", len(from), from)
	}
	// The machine may make any of the quick ones slow, but none of the slow ones quick.
	if slices.Min(bs) < slow || slices.Min(as) >= slow {
		t.Errorf("the quick one took %v, the slow one %v", as, bs)
	}
	if p50 := percentileMillis(bs, 50); p50 < 20 {
		t.Errorf("the slow one took %v ms", p50)
	}
}

// TestAGetThatIsRefused is no figure.
func TestAGetThatIsRefused(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	g := &repeatedGetter{httpClient: server.Client(), requestURL: server.URL}
	if _, _, err := getInTurn(t.Context(), g, g, 1); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the error is %v", err)
	}
}
