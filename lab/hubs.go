package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"atoll.dev/atoll/lab/process"
)

const etcdName = "etcd"

func (o Options) hubCount() int {
	if o.Hubless {
		return 0
	}
	return max(o.Hubs, 1)
}

// hubNames lists the hubs: none, "hub", or "hub", "hub2" and so on.
func (r *labRecord) hubNames() (names []string) {
	if r.Hubless {
		return nil
	}
	names = append(names, hubName)
	for i := range r.MoreHubs {
		names = append(names, fmt.Sprint(hubName, i+2))
	}
	return names
}

// gatewayPorts lists the ports of the hubs' gateways.
func (r *labRecord) gatewayPorts() []int {
	ports := []int{r.GatewayPort}
	for _, h := range r.MoreHubs {
		ports = append(ports, h.GatewayPort)
	}
	return ports
}

// linkPorts lists the relay's ports for the member's agent, one for each hub.
func (m *memberRecord) linkPorts() []int { return append([]int{m.LinkPort}, m.MoreLinks...) }

// linkName is the relay's name of the link between a member and the hub of that index.
func linkName(member string, hub int) string {
	if hub == 0 {
		return member
	}
	return fmt.Sprintf("%s@%s%d", member, hubName, hub+1)
}

// runningHub returns the name of a running hub.
func (r *labRecord) runningHub() (string, bool) {
	for _, name := range r.hubNames() {
		if state, _ := r.hubNamed(name).process.CurrentState(); state == process.Running {
			return name, true
		}
	}
	return "", false
}

func (r *labRecord) hubComponent() component { return r.hubNamed(hubName) }

func (r *labRecord) hubNamed(name string) component {
	port, gateway := r.HubPort, r.GatewayPort
	if i := slices.Index(r.hubNames(), name); i > 0 {
		port, gateway = r.MoreHubs[i-1].Port, r.MoreHubs[i-1].GatewayPort
	}
	data := filepath.Join(r.dir, name)
	command := []string{
		r.Binaries.Hub,
		"--data-dir", data,
		"--port", strconv.Itoa(port),
		"--gateway-port", strconv.Itoa(gateway),
		"--push-allowed-cidrs", "127.0.0.0/8", // where members are
		"--source-allowed-cidrs", "127.0.0.0/8", // where the git servers of tests are
		"--gate-allowed-cidrs", "127.0.0.0/8", // where their Prometheus servers and webhooks are
		"--notification-allowed-cidrs", "127.0.0.0/8", // where the targets of their Notifications are
	}
	if r.EtcdPort > 0 {
		var all []string
		for _, port := range r.gatewayPorts() {
			all = append(all, loopbackAddress(port))
		}
		at := filepath.Join(r.dir, etcdName)
		command = append(command, "--gateway-address", strings.Join(all, ","),
			"--etcd-servers", "https://"+loopbackAddress(r.EtcdPort), "--etcd-cafile", filepath.Join(at, "ca.crt"),
			"--etcd-certfile", filepath.Join(at, "client.crt"), "--etcd-keyfile", filepath.Join(at, "client.key"))
	}
	c := r.newComponent(name, append(command, r.HubArgs...)...)
	kubeconfig := filepath.Join(data, "hub.kubeconfig")
	c.port = port
	c.ready = func(ctx context.Context) error { return checkAPIReady(ctx, kubeconfig) }
	c.publish = [2]string{kubeconfig, r.kubeconfigPath(name)}
	c.graceful = true
	return c
}

// etcdComponent describes the etcd that the hubs share.
func (r *labRecord) etcdComponent() component {
	dir := filepath.Join(r.dir, etcdName)
	c := r.newComponent(etcdName, r.Binaries.Lab, "etcd", "--dir", dir, "--port", strconv.Itoa(r.EtcdPort))
	c.port = r.EtcdPort
	c.ready = func(context.Context) error {
		_, pid := c.process.CurrentState()
		data, err := os.ReadFile(filepath.Join(dir, MemberReady))
		if err != nil || string(data) != strconv.Itoa(pid) {
			return errors.New("it is not ready yet")
		}
		return nil
	}
	return c
}

// startHubs starts the relay and the hubs. The first hub starts alone, because it makes the
// keys of all.
func (l *Lab) startHubs(ctx context.Context, r *labRecord) error {
	if r.EtcdPort > 0 {
		if err := l.startComponents(ctx, r.etcdComponent()); err != nil {
			return err
		}
	}
	if err := l.startComponents(ctx, r.hubComponent()); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, name := range r.hubNames()[1:] {
		if err := r.copyFirstHubKeys(ctx, name); err != nil {
			return err
		}
		group.Go(func() error { return l.startComponents(groupCtx, r.hubNamed(name)) })
	}
	group.Go(func() error { return l.startComponents(groupCtx, r.relayComponent()) })
	return group.Wait()
}

// copyFirstHubKeys copies the key set of the first hub by its commands, unless the hub has one.
func (r *labRecord) copyFirstHubKeys(ctx context.Context, name string) error {
	data := filepath.Join(r.dir, name)
	if _, err := os.Stat(data); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	keys := filepath.Join(r.dir, "run", "keys.tar")
	defer os.Remove(keys)
	for _, args := range [][]string{
		{"backup", "--data-dir", filepath.Join(r.dir, hubName), "--file", keys},
		{"restore", "--data-dir", data, "--file", keys},
	} {
		if out, err := exec.CommandContext(ctx, r.Binaries.Hub, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("give %s the keys of %s: atoll-hub %s: %w: %s", name, hubName, args[0], err, bytes.TrimSpace(out))
		}
	}
	return nil
}
