package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Ports are taken from below the range that Linux gives to outgoing
// connections by default (from 32768), so that a component that is down does
// not find its port used by somebody's client when it comes back.
const (
	firstPort = 18000
	lastPort  = 31999
)

// portPicker reserves ports for the lab in dir. The first error stays in err
// and makes all later picks zero.
type portPicker struct {
	dir string
	err error
}

// pick reserves a port that nobody listens on and no other lab has reserved.
func (p *portPicker) pick() int {
	if p.err != nil {
		return 0
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		listener.Close()
		taken, err := reserve(port, p.dir)
		if err != nil {
			p.err = fmt.Errorf("reserve a port: %w", err)
			return 0
		}
		if taken {
			return port
		}
	}
	p.err = fmt.Errorf("found no free port between %d and %d on 127.0.0.1 in 1000 tries", firstPort, lastPort)
	return 0
}

// reserve takes the port for the lab in dir, unless it is held.
func reserve(port int, dir string) (bool, error) {
	folder := reservations()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return false, err
	}
	file := filepath.Join(folder, strconv.Itoa(port))
	for range 2 {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(dir)
			return true, errors.Join(err, f.Close())
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		held, err := isHeld(file)
		if err != nil || held {
			return false, err
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// isHeld says whether a reservation counts: while the lab that made it has a
// record, and for a minute in any case, since the record comes after the ports.
func isHeld(file string) (bool, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if time.Since(info.ModTime()) < time.Minute {
		return true, nil
	}
	holder, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(filepath.Join(string(holder), recordName))
	return err == nil && len(holder) > 0, nil
}

// releasePorts gives up the reservations of a lab that is about to vanish.
func releasePorts(r *record) {
	ports := []int{r.HubPort, r.GatewayPort, r.EtcdPort}
	for _, h := range r.MoreHubs {
		ports = append(ports, h.Port, h.GatewayPort)
	}
	for _, m := range r.Members {
		ports = append(append(ports, m.Port, m.LinkPort), m.MoreLinks...)
	}
	for _, port := range ports {
		// What stays behind loses its meaning with the lab's record anyway.
		_ = os.Remove(filepath.Join(reservations(), strconv.Itoa(port)))
	}
}

func reservations() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("atoll-lab-ports-%d", os.Getuid()))
}
