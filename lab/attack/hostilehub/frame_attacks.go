package hostilehub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// orderAttacks send orders. The agent reads, decodes, queues and stores them.
var orderAttacks = []Attack{
	{Name: "large-frames", Summary: "order objects as large as a frame", act: func(ctx context.Context, s *agentSession) error { return sendFramesOf(ctx, s, largeObject) }},
	{Name: "oversized-frames", Summary: "order objects of 32 MiB, four times as large as a frame", endsSession: true, act: func(ctx context.Context, s *agentSession) error { return sendFramesOf(ctx, s, oversizedObject) }},
	{Name: "many-values", Summary: "order manifests of 400,000 values", act: sendManyValues},
	{Name: "endless-bundles", Summary: "order one bundle of 60 KiB after the other", act: sendEndlessBundles},
	{Name: "tiny-bundles", Summary: "order a million bundles without an object", act: sendTinyBundles},
	{Name: "missing-content", Summary: "order objects whose content never comes", act: orderMissingContent},
	{Name: "renewals", Summary: "send the agent's certificate with every frame", act: sendRenewals},
}

// unreadAttacks make the agent answer, and read no answer.
var unreadAttacks = []Attack{
	{Name: "unread-stored", Summary: "repeat an old order, and read no acknowledgement", deaf: true, act: repeatOldOrder},
	{Name: "unread-digests", Summary: "query ranges that do not exist, and read no digest", deaf: true, act: queryRanges},
	{Name: "unread-reports", Summary: "request reports, kinds and removals again, and read none", deaf: true, act: requestReports},
}

// repeatFrame sends frames until the session ends.
func (s *agentSession) repeatFrame(ctx context.Context, frame func(turn int) *pb.FromHub) error {
	for i := 0; ctx.Err() == nil; i++ {
		if err := s.sendFrame(frame(i)); err != nil {
			return err
		}
	}
	return nil
}

// orderOf returns an order of a bundle of the attack that nothing holds yet. Its generation is lower than any that the
// honest hub gives.
func (s *agentSession) orderOf(kind string, turn int, manifest []byte) *pb.FromHub {
	return upsertFrame(fmt.Sprintf("%s-%d-%d", kind, s.turn, turn), 1, manifest)
}

const (
	largeObject     = session.MaxFrameBytes - 64<<10
	oversizedObject = 32<<20 - 64<<10
	largeBundles    = 8
	objectBytes     = 60 << 10
	manyValues      = 399_000
	manyElements    = 29_000
	missingItems    = 9_000
)

// sendFramesOf orders objects of so many bytes, in bundles of which each gets one generation after the other.
func sendFramesOf(ctx context.Context, s *agentSession, size int) error {
	m, err := configMapManifest("large", 1, strings.Repeat("x", size))
	if err != nil {
		return err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.repeatFrame(ctx, func(i int) *pb.FromHub {
		return upsertFrame(fmt.Sprintf("large-%d-%d", size, i%largeBundles), int64(s.turn*1000+i/largeBundles+1), body)
	})
}

// manyValueManifests returns manifests of about as many values as an agent decodes, and of about as many elements, each in
// another field.
func manyValueManifests() (out [][]byte) {
	for _, count := range []int{manyValues, manyElements} {
		list := func(field, element string, count int) []byte {
			return fmt.Appendf(nil, `{"content":"c",%q:[%s]}`, field, strings.TrimSuffix(strings.Repeat(element+",", count), ","))
		}
		var namespaces bytes.Buffer
		namespaces.WriteString(`{"content":"c","namespaces":{"a":null`)
		for i := range count {
			fmt.Fprintf(&namespaces, `,"%x":null`, i)
		}
		namespaces.WriteString("}}")
		out = append(out, list("items", "null", count), list("items", "{}", count/2), list("tombstones", "null", count),
			list("interpreters", "null", count), list("deletedNamespaces", `"a"`, count), namespaces.Bytes())
	}
	return out
}

func sendManyValues(ctx context.Context, s *agentSession) error {
	bodies := manyValueManifests()
	return s.repeatFrame(ctx, func(i int) *pb.FromHub { return s.orderOf("values", i, bodies[i%len(bodies)]) })
}

func sendEndlessBundles(ctx context.Context, s *agentSession) error {
	value := strings.Repeat("x", objectBytes)
	for i := 0; ctx.Err() == nil; i++ {
		m, err := configMapManifest(fmt.Sprintf("endless-%d-%d", s.turn, i), 1, value)
		if err != nil {
			return err
		}
		if err := s.orderAs(m); err != nil {
			return err
		}
	}
	return nil
}

// orderAs sends a manifest with all objects, which the honest hub does not order.
func (s *agentSession) orderAs(m atoll.Manifest) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.sendFrame(upsertFrame(m.Bundle, m.Generation, body))
}

func sendTinyBundles(ctx context.Context, s *agentSession) error {
	return s.repeatFrame(ctx, func(i int) *pb.FromHub { return s.orderOf("tiny", i, []byte(`{"content":"c"}`)) })
}

// orderMissingContent sends manifests of many items without objects, and parts of what the agent then requests.
func orderMissingContent(ctx context.Context, s *agentSession) error {
	m := atoll.Manifest{Content: "c"}
	for i := range missingItems {
		name := fmt.Sprint("missing-", i)
		m.Items = append(m.Items, atoll.RenderedItem{
			Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: namespace, Name: name}, APIVersion: "v1", UID: name, Hash: name,
		})
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	part := map[string][]byte{"missing-0": bytes.Repeat([]byte("1"), largeObject)}
	return s.repeatFrame(ctx, func(i int) *pb.FromHub {
		order := s.orderOf("missing", i/2, body)
		if i%2 == 0 {
			return order
		}
		return &pb.FromHub{Frame: &pb.FromHub_Objects{Objects: &pb.Objects{Bundle: order.GetUpsert().GetBundle(), Generation: 1, Objects: part}}}
	})
}

func sendRenewals(ctx context.Context, s *agentSession) error {
	s.hub.mu.Lock()
	renewed := &pb.Renewed{Certificate: s.hub.agentCertificate}
	s.hub.mu.Unlock()
	return s.repeatFrame(ctx, func(int) *pb.FromHub { return &pb.FromHub{Frame: &pb.FromHub_Renewed{Renewed: renewed}} })
}

func repeatOldOrder(ctx context.Context, s *agentSession) error {
	order := upsertFrame(kept, firstGeneration, []byte(`{"content":"old"}`))
	return s.repeatFrame(ctx, func(int) *pb.FromHub { return order })
}

func queryRanges(ctx context.Context, s *agentSession) error {
	query := &pb.DigestQuery{}
	for range 256 {
		query.Prefixes = append(query.Prefixes, "0")
	}
	return s.repeatFrame(ctx, func(int) *pb.FromHub { return &pb.FromHub{Frame: &pb.FromHub_DigestQuery{DigestQuery: query}} })
}

func requestReports(ctx context.Context, s *agentSession) error {
	return s.repeatFrame(ctx, func(i int) *pb.FromHub {
		switch i % 3 {
		case 0:
			return &pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: kept, Seq: int64(i) + 1<<40}}}
		case 1:
			return &pb.FromHub{Frame: &pb.FromHub_Recall{Recall: &pb.Recall{}}}
		}
		return &pb.FromHub{Frame: &pb.FromHub_Ask{Ask: &pb.Ask{Reports: []string{kept}, Apis: true}}}
	})
}
