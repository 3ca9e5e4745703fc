package allocators

import "net/netip"

// Count returns how many addresses are used.
func (a *ServiceAddresses) Count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.used)
}

// Draw is drawAddress.
func (a *ServiceAddresses) Draw(within netip.Prefix) netip.Addr { return a.drawAddress(within) }
