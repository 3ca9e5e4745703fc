package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// apiCalls of a client by verb and type.
type apiCalls struct {
	mu sync.Mutex
	by map[string]int
}

func (c *apiCalls) recordCall(verb string, obj client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := verb + strings.TrimPrefix(fmt.Sprintf("%T", obj), "*")
	put(&c.by, call, c.by[call]+1)
}

func (c *apiCalls) countingClient(in client.Client) client.Client {
	return interceptor.NewClient(in.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			c.recordCall("get ", obj)
			return w.Get(ctx, key, obj, o...)
		},
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			c.recordCall("create ", obj)
			return w.Create(ctx, obj, o...)
		},
		Update: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			c.recordCall("update ", obj)
			return w.Update(ctx, obj, o...)
		},
	})
}

// TestJoinIsOneCreate: a cluster that joins by a token with auto-accept is one request
// to the API server; uses of the token are reserved in batches.
func TestJoinIsOneCreate(t *testing.T) {
	const clusters, atOnce = 150, 50
	var c apiCalls
	h := newTestHub(t, func(o *Options) { o.Client = c.countingClient(o.Client) })
	token := h.createToken(handshake.TokenSpec{Uses: 5000, AutoAccept: true, Set: "lab"})
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range clusters {
		request := joinRequest(t, token.RevealSecret(), fmt.Sprintf("c%d", i), newKey(t))
		group.Go(func() error {
			reply, err := h.Join(t.Context(), request)
			if err == nil && reply.GetState() != stateAccepted {
				err = fmt.Errorf("the hub answers %v", reply)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Log(c.by)
	if n := c.by["create v1alpha1.Cluster"]; n != clusters {
		t.Errorf("%d Clusters were made", n)
	}
	if n := c.by["get v1alpha1.Cluster"] + c.by["update v1alpha1.Cluster"]; n > 0 {
		t.Errorf("%d further requests about Clusters", n)
	}
	if n := c.by["update v1.Secret"]; n > clusters/10 {
		t.Errorf("%d writes of the token for %d uses", n, clusters)
	}
	for _, a := range h.kube.Actions() {
		if verb := a.GetVerb(); verb != "list" && verb != "watch" {
			t.Errorf("a certificate request was touched: %s", verb)
		}
	}
}

// Hubs that share a token refuse no cluster while the token has uses, and every cluster
// when it has none.
func TestLastUsesAreNotReservedAhead(t *testing.T) {
	const clusters = 120
	one := newTestHub(t)
	other := newTestHub(t, func(o *Options) { o.Client = one.client })
	token := one.createToken(handshake.TokenSpec{Uses: clusters, AutoAccept: true, Set: "lab"})
	var group errgroup.Group
	group.SetLimit(20)
	for i := range clusters {
		request := joinRequest(t, token.RevealSecret(), fmt.Sprintf("c%d", i), newKey(t))
		group.Go(func() error {
			_, err := []*testHub{one, other}[i%2].Join(t.Context(), request)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	for i, h := range []*testHub{one, other, one, other} {
		if _, err := h.Join(t.Context(), joinRequest(t, token.RevealSecret(), fmt.Sprintf("stolen%d", i), newKey(t))); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a join with a spent token gets %v", err)
		}
	}
}

// Unspent uses that many joins had reserved ahead return to the token. A deleted token is
// honoured for no longer than that.
func TestUsesReservedAheadAreReturned(t *testing.T) {
	const uses, clusters, apart = 5000, 40, 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		kube := ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).Build()
		desk, token := newTokenUses(t.Context(), kube, slog.New(slog.DiscardHandler)), trust.NewToken()
		secret, err := handshake.NewTokenSecret(token, handshake.TokenSpec{Lifetime: time.Hour, Uses: uses, AutoAccept: true, Set: "lab"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := kube.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		join := func(name string) error {
			passTime(apart)
			_, err := desk.reserveUse(t.Context(), useOf(token, name, "key of "+name))
			desk.dropSpentUse(token, "key of "+name)
			return err
		}
		left := func() int {
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
				t.Fatal(err)
			}
			stored, err := handshake.ParseTokenSecret(secret)
			if err != nil {
				t.Fatal(err)
			}
			return stored.UsesLeft
		}
		for i := range clusters {
			if err := join(fmt.Sprintf("c%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := left(); n >= uses-clusters {
			t.Fatalf("%d uses are left: none was reserved ahead", n)
		}
		passTime(aheadLifetime + aheadGrace)
		if n := left(); n != uses-clusters {
			t.Fatalf("%d uses are left after the last request: unspent uses were not returned", n)
		}
		for i := range 3 { // the last of them by what was reserved ahead
			if err := join(fmt.Sprintf("d%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := kube.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		passTime(aheadLifetime)
		if err := join("late"); err == nil {
			t.Error("a deleted token was honoured")
		}
	})
}
