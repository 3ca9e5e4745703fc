package hostilehub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	pollInterval = 100 * time.Millisecond
	// firstGeneration is above the generation of an order that is old to the agent.
	firstGeneration = 1
)

// serveHonestly keeps an honest session: it orders the rows that differ, removes every other bundle that the agent
// holds, and acknowledges reports.
func (s *agentSession) serveHonestly(hello *pb.Hello) {
	defer s.end()
	h := s.hub
	h.mu.Lock()
	var wants []session.Entry
	for bundle, m := range h.rows {
		wants = append(wants, session.Entry{Bundle: bundle, Generation: m.Generation, Content: m.Content, Status: "unknown"})
	}
	var out session.HubOutput
	s.core, out = session.NewHubSession(hello, wants, false)
	err := s.carryOut(out)
	h.mu.Unlock()
	for err == nil {
		var f *pb.FromAgent
		if f, err = s.stream.Recv(); err != nil {
			return
		}
		h.mu.Lock()
		err = s.carryOut(s.core.HandleFrame(f))
		h.mu.Unlock()
	}
}

// carryOut does what the core of the protocol puts out. The caller holds mu of the hub.
func (s *agentSession) carryOut(out session.HubOutput) error {
	for _, f := range out.Frames {
		if err := s.sendFrame(f); err != nil {
			return err
		}
	}
	for _, e := range append(out.Unclaimed, out.Ahead...) {
		if err := s.orderAbove(e); err != nil {
			return err
		}
	}
	for _, o := range out.Orders {
		if m, ok := s.hub.rows[o.Bundle]; ok {
			if err := s.orderManifest(m); err != nil {
				return err
			}
		}
	}
	for _, r := range out.Reports {
		if err := s.acknowledgeReport(r); err != nil {
			return err
		}
	}
	return nil
}

// orderAbove repeats the order of the hub for a bundle above the generation that the agent holds. A bundle that the hub does not
// want is removed.
func (s *agentSession) orderAbove(held session.Entry) error {
	m, wanted := s.hub.rows[held.Bundle]
	if !wanted {
		m = atoll.Manifest{Bundle: held.Bundle, Remove: true, Removal: v1alpha1.RemoveDelete}
		m.Content = atoll.HashJSON(m)
	}
	m.Generation = held.Generation + 1
	return s.orderManifest(m)
}

// acknowledgeReport keeps the status that the agent reports, and acknowledges the report.
func (s *agentSession) acknowledgeReport(r *pb.Report) error {
	var reported atoll.RowStatus
	if json.Unmarshal(r.GetStatus(), &reported) == nil {
		s.hub.statuses[r.GetBundle()] = reported
	}
	stored := &pb.ReportStored{Bundle: r.GetBundle(), Seq: r.GetSeq()}
	return s.sendFrame(&pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: stored}})
}

// orderManifest sends a manifest with all objects.
func (s *agentSession) orderManifest(m atoll.Manifest) error {
	s.hub.rows[m.Bundle] = m
	body, err := session.NewPayload(m).Encode(nil)
	if err != nil {
		return err
	}
	return s.sendFrame(upsertFrame(m.Bundle, m.Generation, body))
}

func upsertFrame(bundle string, generation int64, manifest []byte) *pb.FromHub {
	return &pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: bundle, Generation: generation, Manifest: manifest}}}
}

// configMapManifest returns the manifest of a bundle with one ConfigMap of the name of the bundle.
func configMapManifest(bundle string, generation int64, value string) (atoll.Manifest, error) {
	object, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": namespace, "name": bundle}, "data": map[string]string{"value": value},
	})
	if err != nil {
		return atoll.Manifest{}, fmt.Errorf("a ConfigMap: %w", err)
	}
	m := atoll.Manifest{
		Bundle: bundle, Namespace: namespace, Name: bundle, Generation: generation,
		ConflictResolution: v1alpha1.ConflictOverwrite, Removal: v1alpha1.RemoveDelete,
		Namespaces: map[string]atoll.NamespaceMeta{namespace: {}},
		Items: []atoll.RenderedItem{{
			Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: namespace, Name: bundle}, APIVersion: "v1", UID: "uid-" + bundle,
			Object: object, Hash: atoll.HashJSON(json.RawMessage(object)),
		}},
	}
	m.Content = atoll.HashJSON(m)
	return m, nil
}

// deliverConfigMap orders a ConfigMap honestly, and waits until the agent reports that its generation is ready.
func (h *hub) deliverConfigMap(ctx context.Context, bundle, value string) error {
	h.mu.Lock()
	m, err := configMapManifest(bundle, max(firstGeneration, h.rows[bundle].Generation)+1, value)
	if err == nil {
		h.rows[bundle] = m
		for s := range h.sessions {
			if s.core != nil {
				err = s.carryOut(s.core.RowChanged(session.Entry{Bundle: bundle, Generation: m.Generation, Content: m.Content}))
			}
		}
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return waitUntil(ctx, honestLimit, "the agent does not report the bundle "+bundle, func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		switch got := h.statuses[bundle]; {
		case got.Generation < m.Generation || got.State != atoll.RowReady:
			return fmt.Errorf("it reports generation %d of %d: %s %s", got.Generation, m.Generation, got.State, got.Message)
		}
		return nil
	})
}
