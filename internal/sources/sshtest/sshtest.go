// Package sshtest has git servers over SSH for tests.
//
// Contract: a Server runs git's own git-upload-pack and no other command, for one user's key. It ends with its test. Functions
// fail the test that calls them, and are called by its goroutine. The fields of a Server are set before it serves.
package sshtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Server is a git server over SSH.
type Server struct {
	Address    string
	Host, User ssh.Signer
	// UserKey is the private key of the user, in the form of OpenSSH.
	UserKey string
	// Connections counts those that were accepted.
	Connections atomic.Int32
	// LastUser is the name by which the last user came.
	LastUser atomic.Value
	// Change changes the configuration of each connection; nil: it stays.
	Change func(*ssh.ServerConfig)
	// Run answers a command; nil: git-upload-pack runs.
	Run func(ssh.Channel)
	// Refuses commands.
	Refuses bool
}

// NewKey returns a key, and its private part in the form of OpenSSH.
func NewKey(t testing.TB) (ssh.Signer, string) {
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

// Serve starts a server with new keys, after changes of its fields.
func Serve(t testing.TB, change ...func(*Server)) *Server {
	t.Helper()
	s := &Server{}
	s.Host, _ = NewKey(t)
	s.User, s.UserKey = NewKey(t)
	for _, fn := range change {
		fn(s)
	}
	s.Address = Listen(t, func(c net.Conn) {
		s.Connections.Add(1)
		s.serveConnection(c)
	})
	return s
}

// KnownHosts returns the line of known_hosts that names the server.
func (s *Server) KnownHosts() string {
	return knownhosts.Line([]string{s.Address}, s.Host.PublicKey()) + "\n"
}

// Listen serves connections until the test ends. It returns the address.
func Listen(t testing.TB, serve func(net.Conn)) string {
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

func (s *Server) serveConnection(c net.Conn) {
	config := &ssh.ServerConfig{PublicKeyCallback: func(m ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.LastUser.Store(m.User())
		if string(key.Marshal()) != string(s.User.PublicKey().Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil
	}}
	config.AddHostKey(s.Host)
	if s.Change != nil {
		s.Change(config)
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

func (s *Server) serveChannel(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for r := range requests {
		var command struct{ Text string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil || !strings.HasPrefix(command.Text, "git-upload-pack ") {
			r.Reply(false, nil)
			continue
		}
		r.Reply(!s.Refuses, nil)
		if s.Refuses {
			return
		}
		var code uint32
		if s.Run != nil {
			s.Run(channel)
		} else if runCommand(channel, command.Text) != nil {
			code = 128
		}
		channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
		return
	}
}

func runCommand(channel ssh.Channel, text string) error {
	cmd := exec.Command("/bin/sh", "-c", text)
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	go func() {
		io.Copy(in, channel)
		in.Close()
	}()
	return cmd.Run()
}
