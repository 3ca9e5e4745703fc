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

// Ports are below the range that Linux gives to outgoing connections by default (from
// 32768), so that no client takes the port of a stopped component.
const (
	firstPort = 18000
	lastPort  = 31999
)

// portPicker reserves ports for the lab in dir. The first error stays in err, and all later
// picks return zero.
type portPicker struct {
	dir string
	err error
}

// pickPort reserves a port without a listener that no other lab has reserved.
func (p *portPicker) pickPort() int {
	for range 1000 {
		if p.err != nil {
			return 0
		}
		port, err := FindFreePort()
		if err != nil {
			p.err = err
			return 0
		}
		taken, err := reservePort(port, p.dir)
		if err != nil {
			p.err = fmt.Errorf("reserve a port: %w", err)
			return 0
		}
		if taken {
			return port
		}
	}
	p.err = fmt.Errorf("other labs have reserved the ports between %d and %d: remove labs that are not used any more", firstPort, lastPort)
	return 0
}

// FindFreePort returns a port of 127.0.0.1 without a listener.
func FindFreePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("found no free port between %d and %d on 127.0.0.1 in 1000 tries", firstPort, lastPort)
}

// reservePort reserves the port for the lab in dir, unless it is held.
func reservePort(port int, dir string) (bool, error) {
	folder := portReservationDir()
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
		held, err := isPortReservationInUse(file)
		if err != nil || held {
			return false, err
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// isPortReservationInUse reports whether a reservation counts: while its lab has a record, and for a minute
// in any case, because the record is written after the ports.
func isPortReservationInUse(file string) (bool, error) {
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

// releasePorts releases the reservations of a lab before its removal.
func releasePorts(r *labRecord) {
	ports := []int{r.HubPort, r.GatewayPort, r.EtcdPort}
	for _, h := range r.MoreHubs {
		ports = append(ports, h.Port, h.GatewayPort)
	}
	for _, m := range r.Members {
		ports = append(append(ports, m.Port, m.LinkPort), m.MoreLinks...)
	}
	for _, port := range ports {
		// Remaining reservations expire with the lab's record.
		_ = os.Remove(filepath.Join(portReservationDir(), strconv.Itoa(port)))
	}
}

func portReservationDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("atoll-lab-ports-%d", os.Getuid()))
}
