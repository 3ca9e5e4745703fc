package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const (
	socketName = "relay.sock"
	modesName  = "links.json"
)

// Spec describes one link: its name and both addresses as host:port.
type Spec struct {
	Name   string `json:"name"`
	Listen string `json:"listen"`
	Target string `json:"target"`
}

// ServeLinks carries links until ctx ends and serves a Unix socket in dir; see Client.
// Modes are stored in dir, so that a relay keeps them over a crash.
func ServeLinks(ctx context.Context, dir string, specs []Spec) error {
	s := &linkServer{file: filepath.Join(dir, modesName), links: map[string]*Link{}}
	modes, err := s.readLinkModes()
	if err != nil {
		return err
	}
	for _, spec := range specs {
		link := newLink(ctx, spec.Listen, spec.Target)
		defer link.Close()
		mode, known := modes[spec.Name]
		if !known {
			mode = Up
		}
		if err := link.SetMode(ctx, mode); err != nil {
			return fmt.Errorf("link %s: %w", spec.Name, err)
		}
		s.links[spec.Name] = link
	}
	listener, closeDir, err := listenControlSocket(ctx, dir)
	if err != nil {
		return fmt.Errorf("control socket %s: %w", filepath.Join(dir, socketName), err)
	}
	defer closeDir()
	web := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("control socket %s: %w", filepath.Join(dir, socketName), err)
	}
	return nil
}

// linkServer answers GET / with the status of all and PUT /NAME with a mode as the body.
type linkServer struct {
	file  string
	links map[string]*Link
}

func (s *linkServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(s.linkStatuses())
		return
	}
	name := filepath.Base(r.URL.Path)
	link, known := s.links[name]
	if !known {
		http.Error(w, fmt.Sprintf("there is no link %q", name), http.StatusNotFound)
		return
	}
	mode, err := io.ReadAll(io.LimitReader(r.Body, 64))
	if err == nil {
		err = link.SetMode(r.Context(), Mode(mode))
	}
	if err == nil {
		err = s.saveModes()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *linkServer) linkStatuses() map[string]Status {
	all := make(map[string]Status, len(s.links))
	for name, link := range s.links {
		all[name] = link.ReadStatus()
	}
	return all
}

func (s *linkServer) readLinkModes() (map[string]Mode, error) {
	var modes map[string]Mode
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &modes)
	}
	if err != nil {
		return nil, fmt.Errorf("modes of links in %s: %w; remove the file to have all links up", s.file, err)
	}
	return modes, nil
}

func (s *linkServer) saveModes() error {
	modes := make(map[string]Mode, len(s.links))
	for name, link := range s.links {
		modes[name] = link.ReadStatus().Mode
	}
	data, err := json.Marshal(modes)
	if err != nil {
		return err
	}
	// Every request writes its own file, so that concurrent ones do not mix.
	tmp, err := os.CreateTemp(filepath.Dir(s.file), modesName+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return os.Rename(tmp.Name(), s.file)
}

// LinkClient is a client of the relay that serves Dir. It keeps no connection.
type LinkClient struct{ Dir string }

// ReadStatus returns the status of every link, by name.
func (c LinkClient) ReadStatus(ctx context.Context) (map[string]Status, error) {
	var all map[string]Status
	body, err := c.sendRequest(ctx, http.MethodGet, "", nil)
	if err == nil {
		err = json.Unmarshal(body, &all)
	}
	return all, err
}

// SetMode changes the mode of one link and returns when it is in force.
func (c LinkClient) SetMode(ctx context.Context, name string, mode Mode) error {
	_, err := c.sendRequest(ctx, http.MethodPut, name, []byte(mode))
	return err
}

func (c LinkClient) sendRequest(ctx context.Context, method, name string, body []byte) ([]byte, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialControlSocket(ctx, c.Dir)
		},
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://relay/"+name, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("the lab's relay does not answer in %s; is the lab up? %w", c.Dir, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("the lab's relay in %s: %w", c.Dir, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("relay: %s", bytes.TrimSpace(answer))
	}
	return answer, nil
}

// listenControlSocket listens on the control socket in dir. Socket names are limited to about a
// hundred bytes, so the path goes through an open directory, which the returned function
// closes.
func listenControlSocket(ctx context.Context, dir string) (net.Listener, func(), error) {
	open, path, err := shortSocketPath(dir)
	if err != nil {
		return nil, nil, err
	}
	// The socket of a killed relay may remain.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		open.Close()
		return nil, nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		open.Close()
		return nil, nil, err
	}
	return listener, func() { open.Close() }, nil
}

func dialControlSocket(ctx context.Context, dir string) (net.Conn, error) {
	open, path, err := shortSocketPath(dir)
	if err != nil {
		return nil, err
	}
	defer open.Close()
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

func shortSocketPath(dir string) (*os.File, string, error) {
	open, err := os.Open(dir)
	if err != nil {
		return nil, "", err
	}
	return open, fmt.Sprintf("/proc/self/fd/%d/%s", open.Fd(), socketName), nil
}
