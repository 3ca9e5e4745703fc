package hub

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// chainLimit is how many starts the chain remembers.
const chainLimit = 1000

// start describes a start of the hub.
type start struct {
	id string
	// revision of the store: where the start before this one ended.
	revision int64
	// restored says why the store is known to be an older state; empty if it is not.
	restored string
}

// appendStart gives the state after a start: the link is added, and a store that
// is known to be set back begins to hold, unless it holds already.
func appendStart(old enginev1.HubState, s start, now time.Time) enginev1.HubState {
	next := *old.DeepCopy()
	next.Chain = append(next.Chain, enginev1.ChainLink{ID: s.id, Revision: s.revision})
	if n := len(next.Chain); n > chainLimit {
		next.Chain = slices.Clone(next.Chain[n-chainLimit:])
	}
	if s.restored != "" {
		next = rewound(next, s.restored, now)
	}
	return next
}

// rewound gives the state of a hub that found out that its store was set back.
func rewound(old enginev1.HubState, reason string, now time.Time) enginev1.HubState {
	next := *old.DeepCopy()
	if next.Rewound != nil && next.Rewound.Accepted == "" {
		return next
	}
	next.Rewound = &enginev1.Rewound{Since: metav1.NewTime(now), Reason: reason}
	return next
}

// recordStart appends this start to the chain in the store and gives its id.
func recordStart(ctx context.Context, c client.Client, etcd *clientv3.Client, restored string) (*enginev1.HubState, error) {
	resp, err := etcd.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("read the store's revision: %w", err)
	}
	s := start{id: rand.Text(), revision: resp.Header.Revision, restored: restored}
	return updateHub(ctx, c, func(old enginev1.HubState) enginev1.HubState { return appendStart(old, s, time.Now()) })
}

// updateHub changes the one HubState, making it where it is missing.
func updateHub(ctx context.Context, c client.Client, change func(enginev1.HubState) enginev1.HubState) (*enginev1.HubState, error) {
	var next enginev1.HubState
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var old enginev1.HubState
		err := c.Get(ctx, client.ObjectKey{Name: state.HubName}, &old)
		if apierrors.IsNotFound(err) {
			next = change(enginev1.HubState{ObjectMeta: metav1.ObjectMeta{Name: state.HubName}, Chain: []enginev1.ChainLink{}})
			return c.Create(ctx, &next)
		}
		if err != nil {
			return err
		}
		next = change(old)
		return c.Update(ctx, &next)
	})
	if err != nil {
		return nil, fmt.Errorf("write the hub's state: %w", err)
	}
	return &next, nil
}
