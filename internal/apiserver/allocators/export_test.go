package allocators

import "net/netip"

// Count returns how many addresses are used.
func (a *Addresses) Count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.used)
}

// Draw is drawAddress.
func (a *Addresses) Draw(within netip.Prefix) netip.Addr { return a.drawAddress(within) }
