package fetch

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshTestServer is a server over SSH that runs git's own git-upload-pack.
type sshTestServer struct {
	address string
	host    ssh.Signer
	user    ssh.Signer
	// userKey is the private key of the user, in the form of OpenSSH.
	userKey string
	root    string
	// connections counts those that were accepted.
	connections atomic.Int32
	// users are the names by which users came.
	users  atomic.Value
	change func(*ssh.ServerConfig)
	// run answers a command; nil: git-upload-pack runs.
	run     func(ssh.Channel)
	refuses bool
}

func newSSHKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// serveSSH serves the repository over SSH.
func (r *gitWork) serveSSH(t *testing.T, change ...func(*sshTestServer)) *sshTestServer {
	t.Helper()
	s := &sshTestServer{root: r.root}
	s.host, _ = newSSHKey(t)
	s.user, s.userKey = newSSHKey(t)
	for _, fn := range change {
		fn(s)
	}
	listener := listenLocally(t, func(c net.Conn) {
		s.connections.Add(1)
		s.serveConnection(c)
	})
	s.address = listener
	return s
}

// listenLocally accepts connections until the test ends.
func listenLocally(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return listener.Addr().String()
}

func (s *sshTestServer) serveConnection(c net.Conn) {
	config := &ssh.ServerConfig{PublicKeyCallback: func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.users.Store(m.User())
		if string(key.Marshal()) != string(s.user.PublicKey().Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil
	}}
	config.AddHostKey(s.host)
	if s.change != nil {
		s.change(config)
	}
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		go s.serveChannel(channel, requests)
	}
}

func (s *sshTestServer) serveChannel(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for r := range requests {
		var command struct{ Text string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
			r.Reply(false, nil)
			continue
		}
		r.Reply(!s.refuses, nil)
		code := uint32(0)
		switch {
		case s.refuses:
			return
		case s.run != nil:
			s.run(channel)
		default:
			cmd := exec.Command("/bin/sh", "-c", command.Text)
			cmd.Dir, cmd.Stdout, cmd.Stderr = s.root, channel, channel.Stderr()
			in, err := cmd.StdinPipe()
			if err != nil {
				return
			}
			go func() {
				io.Copy(in, channel)
				in.Close()
			}()
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
			if err := cmd.Run(); err != nil {
				code = 128
			}
		}
		channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
		return
	}
}

// newRequest returns the request of a Repository of the server.
func (s *sshTestServer) newRequest(change ...func(*Request)) Request {
	r := Request{
		Type: TypeGit, URL: "ssh://deploy@" + s.address + filepath.Join(s.root, "a.git"), Wants: wantMain(),
		SSH: &SSHCredentials{Identity: s.userKey, KnownHosts: knownhosts.Line([]string{s.address}, s.host.PublicKey()) + "\n"},
	}
	for _, fn := range change {
		fn(&r)
	}
	return r
}
