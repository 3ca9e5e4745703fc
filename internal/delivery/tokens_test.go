package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// Clusters that join one after the other cost a write of their token every two seconds. No
// write conflicts, and no use is lost or added.
func TestTokenHasOneWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const uses, clusters, every, slow = 5000, 600, 50 * time.Millisecond, 20 * time.Millisecond
		token := trust.NewToken()
		secret, err := handshake.NewTokenSecret(token, handshake.TokenSpec{Uses: uses, Lifetime: time.Hour}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var writes, conflicts atomic.Int64
		store := interceptor.NewClient(ctrlfake.NewClientBuilder().WithObjects(secret).Build(), interceptor.Funcs{
			Update: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
				<-time.After(slow)
				err := w.Update(ctx, obj, o...)
				if apierrors.IsConflict(err) {
					conflicts.Add(1)
				}
				writes.Add(1)
				return err
			},
		})
		desk := newTokenUses(t.Context(), store, slog.New(slog.DiscardHandler))
		for i := range clusters {
			go func() {
				key := fmt.Sprint(i)
				if _, err := desk.reserveUse(t.Context(), useOf(token, "c"+key, key)); err != nil {
					t.Error(err)
				}
				desk.dropSpentUse(token, key)
			}()
			<-time.After(every)
		}
		<-time.After(2 * (aheadLifetime + aheadGrace))
		var now corev1.Secret
		if err := store.Get(t.Context(), client.ObjectKey{Namespace: atoll.SystemNamespace, Name: handshake.TokenSecretName(token.ID)}, &now); err != nil {
			t.Fatal(err)
		}
		stored, err := handshake.ParseTokenSecret(&now)
		if err != nil || stored.UsesLeft != uses-clusters {
			t.Errorf("%d of %d uses are left after %d: %v", stored.UsesLeft, uses, clusters, err)
		}
		t.Logf("%d writes", writes.Load())
		if n, most := writes.Load(), int64(clusters*every/aheadLifetime)*3/2+10; n > most || conflicts.Load() > 0 {
			t.Errorf("%d writes of the token, at most %d; %d conflicts", n, most, conflicts.Load())
		}
	})
}

// useOf requests a use by a requester that has the key.
func useOf(token trust.Token, name, keyHash string) *useRequest {
	return &useRequest{token: token, name: name, keyHash: keyHash, verifySignature: func() error { return nil }}
}
