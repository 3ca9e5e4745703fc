package apiserver

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/internal/trust/standing"
)

// formerUsersMost is how many users of certificates of the former CA are remembered.
const formerUsersMost = 100

// endsWithTheRotation is the warning that those users get with each answer; kubectl prints it once
// for each command.
const endsWithTheRotation = "the hub's CAs are being rotated: your client certificate ends when that is finished. Get another one; the hub's administrator has a new one in the hub's DIR/hub.kubeconfig"

// formerUsers stores these users. The zero value is empty.
type formerUsers struct {
	mu         sync.Mutex
	generation int // of the CAs to whose rotation they belong
	last       map[string]time.Time
}

// recordUse records that a user has sent a request.
func (f *formerUsers) recordUse(name string, generation int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != generation {
		f.generation, f.last = generation, map[string]time.Time{}
	}
	if _, known := f.last[name]; known || len(f.last) < formerUsersMost {
		f.last[name] = now
	}
}

// usersOfRotationTo returns the users of the rotation to a generation, by name.
func (f *formerUsers) usersOfRotationTo(generation int) (out []standing.FormerUser) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != generation {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.last)) {
		out = append(out, standing.FormerUser{Name: name, Last: f.last[name]})
	}
	return out
}

// FormerUsers returns the users that have used client certificates which end with the present
// rotation, at this hub, the first 100 by name. A user without a request since its begin is not
// included.
func (s *Server) FormerUsers() []standing.FormerUser {
	a := s.CurrentAuthorities()
	if !a.IsRotating() {
		return nil
	}
	return s.former.usersOfRotationTo(a.Generation)
}

// UsesRetiringCertificate reports whether a request used a client certificate that ends with the
// present rotation, whatever user it impersonates.
func (s *Server) UsesRetiringCertificate(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && s.CurrentAuthorities().RetiresCertificate(r.TLS.PeerCertificates[0])
}

// warnFormerUsers warns users that the end of the rotation cuts off, and stores them. It is at the
// place of rewriteQueries in the handler chain.
func (s *Server) warnFormerUsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.UsesRetiringCertificate(r) {
			s.former.recordUse(r.TLS.PeerCertificates[0].Subject.CommonName, s.CurrentAuthorities().Generation, time.Now())
			warning.AddWarning(r.Context(), "", endsWithTheRotation)
		}
		next.ServeHTTP(w, r)
	})
}
