package session

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// messageFields lists the fields of all messages of the protocol.
func messageFields() map[protoreflect.FullName]protoreflect.FieldDescriptor {
	out := map[protoreflect.FullName]protoreflect.FieldDescriptor{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if _, seen := out[limitKey(f)]; seen {
				continue
			}
			out[limitKey(f)] = f
			if f.Kind() == protoreflect.MessageKind && !f.IsMap() {
				walk(f.Message())
			}
		}
	}
	for _, m := range []proto.Message{&pb.FromAgent{}, &pb.JoinRequest{}, &pb.FromHub{}, &pb.JoinReply{}} {
		walk(m.ProtoReflect().Descriptor())
	}
	return out
}

// Every field that can take memory or be stored has a bound, and the table has no other fields.
func TestEveryFieldIsBounded(t *testing.T) {
	fields := messageFields()
	for name, f := range fields {
		l, has := frameLimits[name]
		bounded := true
		switch {
		case f.IsMap():
			bounded = l.count > 0 && l.bytes > 0 && l.keyBytes > 0
		case f.IsList() && l.count == 0:
			bounded = false
		case f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
			bounded = l.bytes > 0
		case f.Kind() == protoreflect.MessageKind, f.Kind() == protoreflect.BoolKind:
		default:
			bounded = l.max > 0
		}
		if !bounded {
			t.Errorf("%s has no bound (entry: %v)", name, has)
		}
	}
	for name := range frameLimits {
		if fields[name] == nil {
			t.Errorf("%s has a bound and is no field of a message", name)
		}
	}
}

// Values at a bound are taken, and those beyond it are refused with the name of the field and
// without their content.
func TestValuesBeyondTheirBoundAreRefused(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for name, c := range map[string]struct {
		good, bad *pb.FromAgent
		field     protoreflect.FullName
	}{
		"string":       {helloFrame(&pb.Hello{Instance: long[:idBytes]}), helloFrame(&pb.Hello{Instance: long[:idBytes+1]}), "Hello.instance"},
		"form":         {helloFrame(&pb.Hello{AgentVersion: "v1.2.3+k3s1"}), helloFrame(&pb.Hello{AgentVersion: "v1\x1b[2J"}), "Hello.agent_version"},
		"last of form": {helloFrame(&pb.Hello{AgentVersion: "!~"}), helloFrame(&pb.Hello{AgentVersion: "v\x7f"}), "Hello.agent_version"},
		"blank":        {helloFrame(&pb.Hello{AgentVersion: "v"}), helloFrame(&pb.Hello{AgentVersion: "v 1"}), "Hello.agent_version"},
		"number":       {helloFrame(&pb.Hello{Highest: maxGeneration}), helloFrame(&pb.Hello{Highest: maxGeneration + 1}), "Hello.highest"},
		"sign":         {reportFrame(&pb.Report{Seq: 1}), reportFrame(&pb.Report{Seq: -1}), "Report.seq"},
		"bytes":        {reportFrame(&pb.Report{Status: []byte(long[:MaxStatusBytes])}), reportFrame(&pb.Report{Status: []byte(long[:MaxStatusBytes+1])}), "Report.status"},
		"list":         {inventoryFrame(&pb.Inventory{Apis: make([]string, 10_000)}), inventoryFrame(&pb.Inventory{Apis: make([]string, 10_001)}), "Inventory.apis"},
		"map key": {inventoryFrame(&pb.Inventory{Allocatable: map[string]string{long[:512]: "1"}}), inventoryFrame(&pb.Inventory{Allocatable: map[string]string{long[:513]: "1"}}),
			"Inventory.allocatable"},
		"map value": {inventoryFrame(&pb.Inventory{Properties: map[string]string{"a": "b c\n"}}), inventoryFrame(&pb.Inventory{Properties: map[string]string{"a": long}}), "Inventory.properties"},
		"nested": {
			&pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: &pb.Digest{Ranges: []*pb.Range{{Prefix: "0", Entries: []*pb.Entry{{Bundle: "b"}}}}}}},
			&pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: &pb.Digest{Ranges: []*pb.Range{{Prefix: "0", Entries: []*pb.Entry{{Bundle: long}}}}}}},
			"Entry.bundle",
		},
	} {
		if err := CheckLimits(c.good); err != nil {
			t.Errorf("%s: a value at the bound: %v", name, err)
		}
		var e *LimitError
		if err := CheckLimits(c.bad); !errors.As(err, &e) || e.Field != c.field || strings.Contains(err.Error(), "xxx") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v, want one about %s", name, err, c.field)
		}
	}
	for name, c := range map[string]struct {
		good, bad proto.Message
		field     protoreflect.FullName
	}{
		"prefixes":    {&pb.DigestQuery{Prefixes: make([]string, queryPrefixes)}, &pb.DigestQuery{Prefixes: make([]string, queryPrefixes+1)}, "DigestQuery.prefixes"},
		"generation":  {&pb.Upsert{Generation: maxGeneration}, &pb.Upsert{Generation: maxGeneration + 1}, "Upsert.generation"},
		"position":    {&pb.Upsert{Position: &pb.Position{Mac: make([]byte, idBytes)}}, &pb.Upsert{Position: &pb.Position{Mac: make([]byte, idBytes+1)}}, "Position.mac"},
		"object":      {&pb.Objects{Objects: map[string][]byte{"h": make([]byte, 5<<20)}}, &pb.Objects{Objects: map[string][]byte{long: nil}}, "Objects.objects"},
		"stored":      {&pb.ReportStored{Seq: maxStoredSeq}, &pb.ReportStored{Seq: maxStoredSeq + 1}, "ReportStored.seq"},
		"certificate": {&pb.Renewed{Certificate: make([]byte, certificateBytes)}, &pb.Renewed{Certificate: make([]byte, certificateBytes+1)}, "Renewed.certificate"},
		"join":        {&pb.JoinReply{Message: "wait a moment\n"}, &pb.JoinReply{ClusterUid: "wait a moment"}, "JoinReply.cluster_uid"},
		"check-in":    {&pb.Idle{CheckInSeconds: maxCheckInSeconds}, &pb.Idle{CheckInSeconds: maxCheckInSeconds + 1}, "Idle.check_in_seconds"},
	} {
		if err := CheckLimits(c.good); err != nil {
			t.Errorf("%s of a hub at the bound: %v", name, err)
		}
		var e *LimitError
		if err := CheckLimits(c.bad); !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%s of a hub: %v, want one about %s", name, err, c.field)
		}
	}
	unknown := helloFrame(&pb.Hello{})
	unknown.GetHello().ProtoReflect().SetUnknown(append([]byte{0xfa, 0x7f, 0x81, 0x20}, make([]byte, maxUnknownBytes+1)...))
	if err := CheckLimits(unknown); err == nil {
		t.Error("unknown fields are not bounded")
	}
}

func helloFrame(h *pb.Hello) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Hello{Hello: h}}
}
func reportFrame(r *pb.Report) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: r}}
}
func inventoryFrame(i *pb.Inventory) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: i}}
}

// FuzzCheckLimits: no bytes that decode make the check panic, and what passes is within the size
// that all bounds of its kind allow.
func FuzzCheckLimits(f *testing.F) {
	for _, m := range []*pb.FromAgent{helloFrame(&pb.Hello{Instance: "a"}), reportFrame(&pb.Report{Bundle: "b", Seq: 1}), inventoryFrame(&pb.Inventory{Apis: []string{"/v1/Pod"}})} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m pb.FromAgent
		if proto.Unmarshal(b, &m) != nil || CheckLimits(&m) != nil {
			return
		}
		if n := len(m.GetReport().GetStatus()); n > MaxStatusBytes {
			t.Errorf("a status of %d bytes passes", n)
		}
		if n := len(m.GetHello().GetInstance()); n > idBytes {
			t.Errorf("an instance of %d bytes passes", n)
		}
	})
}

func BenchmarkCheckLimits(b *testing.B) {
	m := reportFrame(&pb.Report{Bundle: "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", Seq: 7, Status: make([]byte, 400)})
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckLimits(m); err != nil {
			b.Fatal(err)
		}
	}
}
