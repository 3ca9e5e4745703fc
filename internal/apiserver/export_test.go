package apiserver

import "k8s.io/client-go/rest"

// ConnectionConfig is LoopbackConfig by a connection, as others reach the server.
func (s *Server) ConnectionConfig() *rest.Config {
	c := s.identities.configFor(s.loopback, HubUser)
	c.ContentType, c.AcceptContentTypes = "", ""
	return c
}

// Listening is a Server that listens at an address, as far as its methods tell.
func Listening(address string, o Options) *Server { return &Server{options: o, address: address} }

// DeleteUnusedBindings is what a starting server does with the bindings of an earlier version.
var DeleteUnusedBindings = deleteUnusedBindings
