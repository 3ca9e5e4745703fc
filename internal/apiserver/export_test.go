package apiserver

import "k8s.io/client-go/rest"

// ConnectionConfig is LoopbackConfig by a connection, as others reach the server.
func (s *Server) ConnectionConfig() *rest.Config {
	c := s.identities.config(s.loopback, HubUser)
	c.ContentType, c.AcceptContentTypes = "", ""
	return c
}
