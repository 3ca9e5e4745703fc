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

	"atoll.dev/atoll/lab/relay"
)

// PodSubnet is the subnet of the node of the API server at that port: a /26 of
// 100.64.0.0/10, which is meant for such uses, and has one for each possible port. Its
// first address is the node's, its pods have the others.
func PodSubnet(port int) netip.Prefix {
	base := binary.BigEndian.Uint32([]byte{100, 64, 0, 0})
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], base+uint32(port)<<6)
	return netip.PrefixFrom(netip.AddrFrom4(ip), 26)
}

// MemberServiceRange is the range of Services' addresses of the member whose API server has that
// port. It is unique among members, in 240.0.0.0/4, which is not routed.
func MemberServiceRange(port int) netip.Prefix {
	base := binary.BigEndian.Uint32([]byte{240, 0, 0, 0})
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], base+uint32(port)<<12)
	return netip.PrefixFrom(netip.AddrFrom4(ip), 20)
}

// apiServiceAddress is the address of the Service "kubernetes", in every cluster the first
// of its range.
func apiServiceAddress(port int) netip.Addr { return MemberServiceRange(port).Addr().Next() }

// forwardServiceToAPIServer forwards connections at the API server's Service address, which the node's
// device carries, until the link is closed.
func forwardServiceToAPIServer(ctx context.Context, port int) (*relay.Link, error) {
	at := netip.AddrPortFrom(apiServiceAddress(port), 443).String()
	link, err := relay.OpenLink(ctx, at, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String())
	if err != nil {
		return nil, fmt.Errorf("serve the member's API at the address that it has in pods, %s: %w", at, err)
	}
	return link, nil
}

// KubeletAddress is the address of the kubelet of the API server's node, as HOST:PORT.
func KubeletAddress(port int) string {
	return netip.AddrPortFrom(nodeAddress(port), kubeletPort).String()
}

// kubeletPort is upstream's default.
const kubeletPort = 10250

// nodeAddress is the address of the node.
func nodeAddress(port int) netip.Addr { return PodSubnet(port).Addr().Next() }

// nodeDevice carries the addresses of the node and of its API server. It is half of a
// device pair. The other half is in a network namespace that only its handle holds, so that
// both end with this process.
type nodeDevice struct{ peerNamespace netns.NsHandle }

func createNodeDevice(port int) (*nodeDevice, error) {
	elsewhere, err := newNetworkNamespace()
	if err != nil {
		return nil, fmt.Errorf("make the node's network: %w", err)
	}
	d := &nodeDevice{elsewhere}
	name := "atoll" + strconv.Itoa(port)
	// A device of an earlier process is about to vanish.
	if old, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(old)
	}
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name, pair.PeerName, pair.PeerNamespace = name, "peer", netlink.NsFd(elsewhere)
	err = netlink.LinkAdd(pair)
	for _, ip := range []netip.Addr{nodeAddress(port), apiServiceAddress(port)} {
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

// Close removes the device.
func (d *nodeDevice) Close() error { return d.peerNamespace.Close() }

// newNetworkNamespace creates a network namespace and stays in its own.
func newNetworkNamespace() (netns.NsHandle, error) {
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
