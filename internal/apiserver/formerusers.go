package apiserver

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/warning"
)

// formerUsersMost is how many users of certificates of the former CA are remembered.
const formerUsersMost = 100

// endsWithTheRotation is what those users are told with each answer; kubectl prints it once
// per command.
const endsWithTheRotation = "the hub's CAs are being rotated: your client certificate ends when that is finished. Get another one; the hub's administrator has a new one in the hub's DIR/hub.kubeconfig"

// FormerUser of a client certificate that ends with the rotation that is under way.
type FormerUser struct {
	Name string
	Last time.Time // when he asked this hub last
}

// formerUsers remembers who they are. The zero value knows of none.
type formerUsers struct {
	mu         sync.Mutex
	generation int // of the CAs to whose rotation they belong
	last       map[string]time.Time
}

// note that a user has asked.
func (f *formerUsers) note(name string, generation int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != generation {
		f.generation, f.last = generation, map[string]time.Time{}
	}
	if _, known := f.last[name]; known || len(f.last) < formerUsersMost {
		f.last[name] = now
	}
}

// of the rotation to a generation, by name.
func (f *formerUsers) of(generation int) (out []FormerUser) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generation != generation {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.last)) {
		out = append(out, FormerUser{name, f.last[name]})
	}
	return out
}

// FormerUsers are those who have asked this hub by client certificates that end with the
// rotation that is under way, the first 100 of them, by name. Who has not asked since it
// began is not known of.
func (s *Server) FormerUsers() []FormerUser {
	a := s.Authorities()
	if !a.Rotating() {
		return nil
	}
	return s.former.of(a.Generation)
}

// EndsWithTheRotation tells whether a request came by a client certificate that ends with the
// rotation that is under way, whoever it is made as.
func (s *Server) EndsWithTheRotation(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && s.Authorities().EndsWithTheRotation(r.TLS.PeerCertificates[0])
}

// warnFormer tells who will be cut off by the end of the rotation, and remembers who it is. It
// stands where rewrite stands.
func (s *Server) warnFormer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.EndsWithTheRotation(r) {
			s.former.note(r.TLS.PeerCertificates[0].Subject.CommonName, s.Authorities().Generation, time.Now())
			warning.AddWarning(r.Context(), "", endsWithTheRotation)
		}
		next.ServeHTTP(w, r)
	})
}
