package fetch

import (
	"path/filepath"
	"testing"

	"atoll.dev/atoll/internal/sources/sshtest"
)

// sshTestServer serves a repository over SSH.
type sshTestServer struct {
	*sshtest.Server
	root string
}

func (r *gitWork) serveSSH(t *testing.T, change ...func(*sshtest.Server)) *sshTestServer {
	t.Helper()
	return &sshTestServer{sshtest.Serve(t, change...), r.root}
}

// newRequest returns the request of a Repository of the server.
func (s *sshTestServer) newRequest(change ...func(*Request)) Request {
	r := Request{
		Type: TypeGit, URL: "ssh://deploy@" + s.Address + filepath.Join(s.root, "a.git"), Wants: wantMain(),
		SSH: &SSHCredentials{Identity: s.UserKey, KnownHosts: s.KnownHosts()},
	}
	for _, fn := range change {
		fn(&r)
	}
	return r
}
