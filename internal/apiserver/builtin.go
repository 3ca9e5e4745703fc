package apiserver

import (
	"atoll.dev/atoll/internal/apiserver/inert"
)

// builtinAdmission are the plugins that make the API server the hub's, ahead of
// those that come with the options.
func (s *Server) builtinAdmission() []AdmissionPlugin {
	return []AdmissionPlugin{
		{Name: "AtollInert", Handler: inert.NewAdmission(s.identities.isOwn)},
	}
}
