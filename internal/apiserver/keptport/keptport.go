// Package keptport opens a port whose number clients keep: kubeconfigs of the API, and the
// addresses that agents dial.
package keptport

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"

	"atoll.dev/atoll/internal/apiserver/datadir"
)

// A free port is below the range that Linux gives to outgoing connections by default (from
// 32768), so that no client takes the port of a hub that restarts, and below the node ports of
// Kubernetes (from 30000).
const (
	firstFree = 20000
	lastFree  = 29999
	freeTries = 100
)

// Options of a port.
type Options struct {
	// BindAddress is the IP address to listen on. Required.
	BindAddress string
	// Port to listen on. 0 opens the port of the last start; at the first start Preferred
	// when it is free, else a free one.
	Port int
	// Preferred is tried first at the first start. Required.
	Preferred int
	// File stores the port. Required.
	File string
	// Flag by which a person chooses the port, as errors name it. Required.
	Flag string
}

// OpenKeptPort opens the port and stores it. A remembered port that another process holds is an
// error: at another port no client would find the hub.
func OpenKeptPort(o Options) (net.Listener, error) {
	var l net.Listener
	last, err := readRememberedPort(o.File)
	switch {
	case err != nil && o.Port == 0:
		return nil, fmt.Errorf("%w; choose the port with %s", err, o.Flag)
	case o.Port != 0:
		if l, err = listenAt(o.BindAddress, o.Port); err != nil {
			return nil, fmt.Errorf("%w; choose another port with %s", err, o.Flag)
		}
	case last != 0:
		if l, err = listenAt(o.BindAddress, last); err != nil {
			return nil, fmt.Errorf("%w; clients use this port since the last start (%s): end the process that holds it, or choose another with %s and give clients the new address",
				err, o.File, o.Flag)
		}
	default:
		if l, err = listenAnywhere(o.BindAddress, o.Preferred); err != nil {
			return nil, fmt.Errorf("%w; choose a port with %s", err, o.Flag)
		}
	}
	if err := datadir.WriteFileAtomically(o.File, []byte(strconv.Itoa(PortOf(l))+"\n"), 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// PortOf returns the number of the port that the listener has open.
func PortOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// readRememberedPort returns the remembered port, 0 if there is none.
func readRememberedPort(file string) (int, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the port of the last start: %w", err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("read the port of the last start in %s: %w", file, err)
	}
	return int(port), nil
}

// listenAnywhere opens the preferred port or a free one. The error is that of the preferred port.
func listenAnywhere(address string, preferred int) (net.Listener, error) {
	l, first := listenAt(address, preferred)
	if first == nil {
		return l, nil
	}
	for range freeTries {
		if l, err := listenAt(address, firstFree+rand.IntN(lastFree-firstFree+1)); err == nil {
			return l, nil
		}
	}
	return nil, first
}

func listenAt(address string, port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
}
