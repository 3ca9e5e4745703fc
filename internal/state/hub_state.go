package state

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// HubStateName is the name of the one HubState.
const HubStateName = "hub"

// HubStateTable is the one HubState.
type HubStateTable struct {
	mu    sync.RWMutex
	state *enginev1.HubState
	notifier[struct{}]
}

// HoldReason is true, with the reason, while the hub holds after a restore from an
// older state.
func (h *HubStateTable) HoldReason() (reason string, holding bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.state == nil || h.state.Rewound == nil || h.state.Rewound.Accepted != "" {
		return "", false
	}
	return h.state.Rewound.Reason, true
}

// GenerationFloor: generations of rows start above it.
func (h *HubStateTable) GenerationFloor() int64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.state == nil {
		return 0
	}
	return h.state.GenerationFloor
}

// Get returns the HubState; nil before the hub's first start has written it.
func (h *HubStateTable) Get() *enginev1.HubState {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.state
}

// Put stores what a writer got back from the API server, so that it reads its own write.
func (h *HubStateTable) Put(s *enginev1.HubState) { h.put(s) }

// Subscribe subscribes to changes of the HubState.
func (h *HubStateTable) Subscribe(fn func()) { h.addSubscriber(func(struct{}) { fn() }) }

func (h *HubStateTable) put(obj client.Object) {
	s := obj.(*enginev1.HubState)
	if s.Name != HubStateName {
		return
	}
	h.mu.Lock()
	if h.state != nil && !isOlderVersion(h.state.ResourceVersion, s.ResourceVersion) {
		h.mu.Unlock()
		return
	}
	h.state = s
	h.mu.Unlock()
	h.notifyAll(struct{}{})
}

// removeObject keeps what was known: the chain does not become shorter when its object is deleted.
func (h *HubStateTable) removeObject(client.Object) {}

// CompareHubState reads the HubState from the store. It returns the store's revision, and whether the table has
// the hub's starts as the store has them.
func (t *HubTables) CompareHubState(ctx context.Context) (revision int64, known bool, err error) {
	var list enginev1.HubStateList
	if err := t.Client.List(ctx, &list); err != nil {
		return 0, false, fmt.Errorf("look at the hub's state: %w", err)
	}
	if revision, err = strconv.ParseInt(list.ResourceVersion, 10, 64); err != nil {
		return 0, false, fmt.Errorf("look at the hub's state: %w", err)
	}
	has := t.Hub.Get()
	for i := range list.Items {
		if list.Items[i].Name == HubStateName {
			return revision, has != nil && has.ResourceVersion == list.Items[i].ResourceVersion, nil
		}
	}
	return revision, false, nil
}
