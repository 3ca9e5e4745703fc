package realnode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"atoll.dev/atoll/internal/lab/relay"
)

// Subnet of the node beside the API server at that port: a /26 of 100.64.0.0/10, which is
// meant for such uses, and has one for each port there can be. Its first address is the
// node's, its pods have the others.
func Subnet(port int) netip.Prefix {
	base := binary.BigEndian.Uint32([]byte{100, 64, 0, 0})
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], base+uint32(port)<<6)
	return netip.PrefixFrom(netip.AddrFrom4(ip), 26)
}

// Services is the range of Services' addresses of the member whose API server has that port:
// one that no other member has, of 240.0.0.0/4, which nobody routes.
func Services(port int) netip.Prefix {
	base := binary.BigEndian.Uint32([]byte{240, 0, 0, 0})
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], base+uint32(port)<<12)
	return netip.PrefixFrom(netip.AddrFrom4(ip), 20)
}

// api is the address of the Service "kubernetes", in every cluster the first of its range.
func api(port int) netip.Addr { return Services(port).Addr().Next() }

// serveAPI passes on what comes to the API server's Service address, which the node's device
// carries, until the link is closed.
func serveAPI(ctx context.Context, port int) (*relay.Link, error) {
	at := netip.AddrPortFrom(api(port), 443).String()
	link, err := relay.Listen(ctx, at, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String())
	if err != nil {
		return nil, fmt.Errorf("serve the member's API at the address that it has in pods, %s: %w", at, err)
	}
	return link, nil
}

// Kubelet is where the kubelet of the node beside the API server at that port listens, as
// HOST:PORT.
func Kubelet(port int) string { return netip.AddrPortFrom(address(port), kubeletPort).String() }

// kubeletPort is upstream's default.
const kubeletPort = 10250

// address of the node.
func address(port int) netip.Addr { return Subnet(port).Addr().Next() }

// device carries the addresses of the node and of its API server. It is half of a pair whose other half is in a network
// namespace that nothing but its handle holds, so that both end with this process.
type device struct{ elsewhere netns.NsHandle }

func newDevice(port int) (*device, error) {
	elsewhere, err := otherNamespace()
	if err != nil {
		return nil, fmt.Errorf("make the node's network: %w", err)
	}
	d := &device{elsewhere}
	name := "atoll" + strconv.Itoa(port)
	// One that a process before this left is on its way out.
	if old, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(old)
	}
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name, pair.PeerName, pair.PeerNamespace = name, "peer", netlink.NsFd(elsewhere)
	err = netlink.LinkAdd(pair)
	for _, ip := range []netip.Addr{address(port), api(port)} {
		if err == nil {
			err = netlink.AddrAdd(pair, &netlink.Addr{IPNet: netlink.NewIPNet(ip.AsSlice())})
		}
	}
	if err == nil {
		err = netlink.LinkSetUp(pair)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the node's network device %s: %w", name, err), d.Close())
	}
	return d, nil
}

// Close takes the device away.
func (d *device) Close() error { return d.elsewhere.Close() }

// otherNamespace makes a network namespace and stays in its own.
func otherNamespace() (netns.NsHandle, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		return netns.None(), err
	}
	defer own.Close()
	other, err := netns.New()
	if err != nil {
		return netns.None(), err
	}
	if err := netns.Set(own); err != nil {
		return netns.None(), errors.Join(err, other.Close())
	}
	return other, nil
}
