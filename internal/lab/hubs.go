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

	"atoll.dev/atoll/internal/lab/process"
)

const etcdName = "etcd"

func (o Options) hubs() int {
	if o.Hubless {
		return 0
	}
	return max(o.Hubs, 1)
}

// hubNames lists the hubs: none, "hub", or "hub", "hub2" and so on.
func (r *record) hubNames() (names []string) {
	if r.Hubless {
		return nil
	}
	names = append(names, hubName)
	for i := range r.MoreHubs {
		names = append(names, fmt.Sprint(hubName, i+2))
	}
	return names
}

// gateways lists the ports of the hubs' gateways.
func (r *record) gateways() []int {
	ports := []int{r.GatewayPort}
	for _, h := range r.MoreHubs {
		ports = append(ports, h.GatewayPort)
	}
	return ports
}

// links lists where the relay listens for the member's agent, one for each hub.
func (m *memberRecord) links() []int { return append([]int{m.LinkPort}, m.MoreLinks...) }

// linkName is what the relay calls the link of a member to the hub of that index.
func linkName(member string, hub int) string {
	if hub == 0 {
		return member
	}
	return fmt.Sprintf("%s@%s%d", member, hubName, hub+1)
}

// runningHub names a hub that runs.
func (r *record) runningHub() (string, bool) {
	for _, name := range r.hubNames() {
		if state, _ := r.hubNamed(name).process.State(); state == process.Running {
			return name, true
		}
	}
	return "", false
}

func (r *record) hub() component { return r.hubNamed(hubName) }

func (r *record) hubNamed(name string) component {
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
	}
	if r.EtcdPort > 0 {
		var all []string
		for _, port := range r.gateways() {
			all = append(all, loopback(port))
		}
		at := filepath.Join(r.dir, etcdName)
		command = append(command, "--gateway-address", strings.Join(all, ","),
			"--etcd-servers", "https://"+loopback(r.EtcdPort), "--etcd-cafile", filepath.Join(at, "ca.crt"),
			"--etcd-certfile", filepath.Join(at, "client.crt"), "--etcd-keyfile", filepath.Join(at, "client.key"))
	}
	c := r.component(name, append(command, r.HubArgs...)...)
	kubeconfig := filepath.Join(data, "hub.kubeconfig")
	c.port = port
	c.ready = func(ctx context.Context) error { return apiReady(ctx, kubeconfig) }
	c.publish = [2]string{kubeconfig, r.kubeconfig(name)}
	c.graceful = true
	return c
}

// etcd that the hubs share.
func (r *record) etcd() component {
	dir := filepath.Join(r.dir, etcdName)
	c := r.component(etcdName, r.Binaries.Lab, "etcd", "--dir", dir, "--port", strconv.Itoa(r.EtcdPort))
	c.port = r.EtcdPort
	c.ready = func(context.Context) error {
		_, pid := c.process.State()
		data, err := os.ReadFile(filepath.Join(dir, MemberReady))
		if err != nil || string(data) != strconv.Itoa(pid) {
			return errors.New("it does not say that it is ready")
		}
		return nil
	}
	return c
}

// bringHubs starts the hubs, the first alone, since it makes the keys of all, and the
// relay.
func (l *Lab) bringHubs(ctx context.Context, r *record) error {
	if r.EtcdPort > 0 {
		if err := l.bring(ctx, r.etcd()); err != nil {
			return err
		}
	}
	if err := l.bring(ctx, r.hub()); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, name := range r.hubNames()[1:] {
		if err := r.shareKeys(ctx, name); err != nil {
			return err
		}
		group.Go(func() error { return l.bring(groupCtx, r.hubNamed(name)) })
	}
	group.Go(func() error { return l.bring(groupCtx, r.relay()) })
	return group.Wait()
}

// shareKeys gives a hub the key set of the first, as a person would, unless it has it.
func (r *record) shareKeys(ctx context.Context, name string) error {
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
