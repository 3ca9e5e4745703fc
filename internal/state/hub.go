package state

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// HubName is the name of the one HubState.
const HubName = "hub"

// Hub is the one HubState.
type Hub struct {
	mu    sync.RWMutex
	state *enginev1.HubState
	notifier[struct{}]
}

// Chain of hub starts, oldest first.
func (h *Hub) Chain() []enginev1.ChainLink {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.state == nil {
		return nil
	}
	return h.state.Chain
}

// Holding is true, with the reason, while the hub holds after a restore from an
// older state.
func (h *Hub) Holding() (reason string, holding bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.state == nil || h.state.Rewound == nil || h.state.Rewound.Accepted != "" {
		return "", false
	}
	return h.state.Rewound.Reason, true
}

// GenerationFloor: generations of rows start above it.
func (h *Hub) GenerationFloor() int64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.state == nil {
		return 0
	}
	return h.state.GenerationFloor
}

// Get the HubState; nil before the hub's first start has written it.
func (h *Hub) Get() *enginev1.HubState {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.state
}

// Put what a writer got back from the API server, so that it reads its own write.
func (h *Hub) Put(s *enginev1.HubState) { h.put(s) }

// Subscribe to changes of the HubState.
func (h *Hub) Subscribe(fn func()) { h.subscribe(func(struct{}) { fn() }) }

func (h *Hub) put(obj client.Object) {
	s := obj.(*enginev1.HubState)
	if s.Name != HubName {
		return
	}
	h.mu.Lock()
	if h.state != nil && !older(h.state.ResourceVersion, s.ResourceVersion) {
		h.mu.Unlock()
		return
	}
	h.state = s
	h.mu.Unlock()
	h.notify(struct{}{})
}

// drop keeps what was known: the chain does not become shorter because somebody
// deleted the object that holds it.
func (h *Hub) drop(client.Object) {}
