package etcd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// longestSocketPath is how many bytes of path a unix socket address holds on every supported
// system, less the name of the socket.
const longestSocketPath = 103

// socketDir names a directory by a path that is short enough for the sockets in
// it.
type socketDir struct {
	path string
	dir  *os.File
}

// openShortSocketDir keeps dir's own path when it is short. Otherwise it opens dir
// and names it by its descriptor, which only this process can use; another
// process opens its own.
func openShortSocketDir(dir string) (*socketDir, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the absolute path of %s: %w", dir, err)
	}
	if len(abs)+1+len(clientSocket) <= longestSocketPath {
		return &socketDir{path: abs}, nil
	}
	f, err := os.Open(abs)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", abs, err)
	}
	byDescriptor := filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())))
	if _, err := os.Stat(byDescriptor); err != nil {
		f.Close()
		return nil, fmt.Errorf("the path %s is longer than a socket address can be; choose a data directory with a shorter path: %w", abs, err)
	}
	return &socketDir{path: byDescriptor, dir: f}, nil
}

// Close releases the directory; sockets that are open stay open.
func (s *socketDir) Close() {
	if s.dir != nil {
		s.dir.Close()
	}
}
