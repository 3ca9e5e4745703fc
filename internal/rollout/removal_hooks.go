package rollout

import "atoll.dev/atoll/internal/atoll"

// orderRemovalHooks gives a row that is Removing the order about the hooks of its removal. An order stays when its
// annotation goes: it was carried out.
func (s *rolloutStep) orderRemovalHooks(spec *atoll.RowSpec) {
	if s.RemovalHooks != "" {
		spec.RemovalHooks = s.RemovalHooks
	}
}
