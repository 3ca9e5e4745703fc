package delivery

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// A reserved use waits for the same key and is not charged again. It is not given to
// another token, another name, or after it was spent.
func TestReservedUseBelongsToItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := trust.NewToken()
		secret, err := handshake.NewTokenSecret(token, handshake.TokenSpec{Uses: 9, Lifetime: time.Hour, NamePattern: "shop-*"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		store := ctrlfake.NewClientBuilder().WithObjects(secret).Build()
		desk := newTokenUses(t.Context(), store, slog.New(slog.DiscardHandler))
		left := func() int {
			t.Helper()
			var now corev1.Secret
			if err := store.Get(t.Context(), client.ObjectKey{Namespace: atoll.SystemNamespace, Name: handshake.TokenSecretName(token.ID)}, &now); err != nil {
				t.Fatal(err)
			}
			stored, err := handshake.ParseTokenSecret(&now)
			if err != nil {
				t.Fatal(err)
			}
			return stored.UsesLeft
		}
		forged, err := trust.ParseToken("atoll1." + token.ID + ".aaaaaaaaaaaaaaaaaaaaaaaaaa")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what  string
			token trust.Token
			name  string
			key   string
			ok    bool
			left  int
			then  func()
		}{
			{"the first", token, "shop-1", "k1", true, 8, nil},
			{"the same again", token, "shop-1", "k1", true, 8, nil},
			{"a guessed token", forged, "shop-1", "k1", false, 8, nil},
			{"under a name that is not allowed", token, "bank", "k1", false, 8, nil},
			{"another key", token, "shop-1", "k2", true, 7, nil},
			{"the same, later", token, "shop-1", "k1", true, 7, func() { time.Sleep(reservedUseLifetime + time.Second) }},
			{"the same, after that", token, "shop-1", "k1", true, 6, func() { desk.dropSpentUse(token, "k1") }},
			{"the same, after it was spent", token, "shop-1", "k1", true, 5, func() { time.Sleep(time.Hour) }},
			{"the same, after the token's end", token, "shop-1", "k1", false, 5, nil},
		} {
			_, err := desk.reserveUse(t.Context(), useOf(c.token, c.name, c.key))
			if (err == nil) != c.ok || err != nil && !errors.Is(err, errTokenRefused) {
				t.Errorf("%s: %v", c.what, err)
			}
			if n := left(); n != c.left {
				t.Errorf("%s: %d uses are left, want %d", c.what, n, c.left)
			}
			if c.then != nil {
				c.then()
			}
		}
		desk.mu.Lock()
		defer desk.mu.Unlock()
		if n := len(desk.reserved); n > 2 {
			t.Errorf("%d uses are remembered", n)
		}
	})
}
