package apiserver

import (
	"crypto/rand"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

// HubUser is the user name of the hub's own controllers. Like the users that
// controllers of the API itself run as, it belongs to system:masters.
const HubUser = "system:atoll:hub"

// controllerUserPrefix starts the user names of upstream's controllers.
const controllerUserPrefix = "system:controller:"

// internalUsers are the users of this process. Their tokens are drawn at start,
// live in memory, and end with the process.
type internalUsers struct {
	tokens map[string]string
	users  map[string]*user.DefaultInfo
}

func newInternalUsers(names ...string) *internalUsers {
	i := &internalUsers{tokens: map[string]string{}, users: map[string]*user.DefaultInfo{}}
	for _, name := range names {
		token := rand.Text() + rand.Text()
		i.tokens[name] = token
		i.users[token] = &user.DefaultInfo{
			Name:   name,
			UID:    rand.Text(),
			Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup},
		}
	}
	return i
}

// userOf returns the user of that name.
func (i *internalUsers) userOf(name string) user.Info { return i.users[i.tokens[name]] }

// addIdentities adds the identities to those in info.
func (i *internalUsers) addIdentities(info *genericapiserver.AuthenticationInfo) {
	own := authenticatorfactory.NewFromTokens(i.users, info.APIAudiences)
	info.Authenticator = union.New(own, info.Authenticator)
}

// configFor returns a copy of the API server's own client configuration under
// another name.
func (i *internalUsers) configFor(loopback *rest.Config, name string) *rest.Config {
	c := rest.CopyConfig(loopback)
	c.BearerToken = i.tokens[name]
	c.UserAgent = name
	return c
}

// inProcessClientConfig is for clients of the API in this process, under one of its identities. They
// call the API server's handlers, all of them, without a connection.
func (s *Server) inProcessClientConfig(name string) *rest.Config {
	c := s.identities.configFor(s.loopback, name)
	c.Transport, c.TLSClientConfig = s.inside, rest.TLSClientConfig{}
	return c
}

// IsHubUser reports whether a user is the hub itself: its API server, its controllers, or
// upstream's controllers in it. For admission plugins, which exist before a Server.
func IsHubUser(u user.Info) bool {
	if u == nil || !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return false
	}
	name := u.GetName()
	return name == user.APIServerUser || name == HubUser || strings.HasPrefix(name, controllerUserPrefix)
}

// isProcessUser reports whether a user is this process itself: the API server or one of
// the hub's controllers.
func (i *internalUsers) isProcessUser(u user.Info) bool {
	if u == nil {
		return false
	}
	if u.GetName() == user.APIServerUser {
		return true
	}
	_, own := i.tokens[u.GetName()]
	return own
}
