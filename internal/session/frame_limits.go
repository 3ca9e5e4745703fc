package session

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"atoll.dev/atoll/internal/atoll"
)

// MaxAgentFrameBytes is the largest frame that the hub takes of an agent, in bytes.
const MaxAgentFrameBytes = 1 << 20

const (
	// maxGeneration is the largest generation and sequence number: JSON numbers are exact up to it.
	maxGeneration = 1<<53 - 1
	// maxStoredSeq is the largest number of a report that a hub may claim to have stored. The agent
	// continues above it, so that the numbers below maxGeneration are not used up.
	maxStoredSeq = 1 << 52
	// maxUnknownBytes bounds the fields of a message that this version does not have.
	maxUnknownBytes = 4 << 10
)

// fieldLimit bounds one field of a message. The zero value of each part means that the field has no
// such part.
type fieldLimit struct {
	// bytes of a string or byte field, of each element of a list, and of each value of a map.
	bytes int
	// keyBytes of each key of a map.
	keyBytes int
	// count of the elements of a list or map.
	count int
	// max of a number. Numbers below 0 are refused.
	max int64
	// text may have spaces and any characters. Other strings are identifiers: printable ASCII
	// without spaces.
	text bool
}

const (
	idBytes          = 128 // a UID, a hash, a name of a version
	versionBytes     = 128
	nameBytes        = 253      // the name of an object
	messageBytes     = 32 << 10 // a text for people; the hub stores its beginning
	certificateBytes = 64 << 10 // certificates in PEM
)

// maxCheckInSeconds is the longest interval that a hub may order. The API allows a day.
const maxCheckInSeconds = 7 * 24 * 60 * 60

// frameLimits bounds every field that either end sends. A field without an entry fails a test.
var frameLimits = map[protoreflect.FullName]fieldLimit{
	"JoinRequest.token":         {bytes: idBytes},
	"JoinRequest.name":          {bytes: 63},
	"JoinRequest.csr":           {bytes: 4 << 10},
	"JoinRequest.agent_version": {bytes: versionBytes},

	"Hello.agent_version": {bytes: versionBytes},
	"Hello.protocol":      {max: 1 << 20},
	"Hello.digest":        {bytes: digestBytes},
	"Hello.held":          {max: 1 << 32},
	"Hello.instance":      {bytes: idBytes},
	"Hello.highest":       {max: maxGeneration},

	"Position.chain_id": {bytes: idBytes},
	"Position.revision": {max: 1<<63 - 1},
	"Position.mac":      {bytes: idBytes},
	"Position.issued":   {max: atoll.MaxUnixSeconds},

	"Digest.ranges":    {count: queryPrefixes},
	"Range.prefix":     {bytes: prefixLimit},
	"Range.children":   {count: treeFanOut, bytes: digestBytes},
	"Range.entries":    {count: 4 * leafEntries},
	"Entry.bundle":     {bytes: idBytes},
	"Entry.generation": {max: maxGeneration},
	"Entry.content":    {bytes: idBytes},
	"Entry.status":     {bytes: idBytes},

	"Need.bundle":     {bytes: idBytes},
	"Need.generation": {max: maxGeneration},
	"Need.hashes":     {count: maxManifestElements, bytes: idBytes}, // an agent that holds nothing needs all objects

	"Stored.bundle":     {bytes: idBytes},
	"Stored.generation": {max: maxGeneration},
	"Stored.content":    {bytes: idBytes},

	"Report.bundle": {bytes: idBytes},
	"Report.seq":    {max: maxGeneration},
	"Report.status": {bytes: MaxStatusBytes},

	"Timing.apply_ms": {max: 1<<32 - 1},
	"Timing.age_ms":   {max: 1<<32 - 1},

	"Inventory.kubernetes_version": {bytes: versionBytes},
	"Inventory.agent_version":      {bytes: versionBytes},
	"Inventory.apis":               {count: 10_000, bytes: 512},
	"Inventory.apis_hash":          {bytes: idBytes},
	"Inventory.nodes_total":        {max: 1 << 20},
	"Inventory.nodes_ready":        {max: 1 << 20},
	"Inventory.allocatable":        {count: 256, keyBytes: 512, bytes: idBytes},
	"Inventory.requested":          {count: 256, keyBytes: 512, bytes: idBytes},
	"Inventory.member_message":     {bytes: messageBytes, text: true},
	"Inventory.properties":         {count: 1000, keyBytes: 512, bytes: 4 << 10, text: true},
	"Room.classes":                 {count: 64, bytes: 4 << 10, text: true},
	"Room.groups":                  {count: 16},
	"Room.class_groups":            {count: 64, max: 16},
	"Room.shared_labels":           {count: 64, keyBytes: 317, bytes: 63},
	"Room.unreported_labels":       {count: 32, bytes: 320},

	"NodeGroup.size":   {bytes: 1 << 10, text: true},
	"NodeGroup.labels": {count: 64, keyBytes: 317, bytes: 63},

	"Renew.csr": {bytes: 4 << 10},

	"Remembered.tombstones":          {count: 500},
	"RememberedTombstone.bundle":     {bytes: idBytes},
	"RememberedTombstone.generation": {max: maxGeneration},
	"RememberedTombstone.tombstone":  {bytes: 8 << 10},
	"RememberedTombstone.at":         {max: atoll.MaxUnixSeconds},

	"JoinReply.state":        {bytes: idBytes},
	"JoinReply.certificate":  {bytes: certificateBytes},
	"JoinReply.cluster_uid":  {bytes: idBytes},
	"JoinReply.cluster_name": {bytes: nameBytes},
	"JoinReply.message":      {bytes: messageBytes, text: true},
	"JoinReply.hub_ca":       {bytes: certificateBytes},

	"Welcome.cluster_name":     {bytes: nameBytes},
	"Welcome.cluster_uid":      {bytes: idBytes},
	"Welcome.hub_version":      {bytes: versionBytes},
	"Welcome.check_in_seconds": {max: maxCheckInSeconds},
	"Idle.check_in_seconds":    {max: maxCheckInSeconds},

	"DigestQuery.prefixes": {count: queryPrefixes, bytes: prefixLimit},

	"Upsert.bundle":      {bytes: idBytes},
	"Upsert.generation":  {max: maxGeneration},
	"Upsert.manifest":    {bytes: MaxFrameBytes},
	"Objects.bundle":     {bytes: idBytes},
	"Objects.generation": {max: maxGeneration},
	"Objects.objects":    {count: maxFrameObjects, keyBytes: idBytes, bytes: MaxFrameBytes},

	"ReportStored.bundle": {bytes: idBytes},
	"ReportStored.seq":    {max: maxStoredSeq},
	"Ask.reports":         {count: 100_000, bytes: idBytes},

	"Renewed.certificate": {bytes: certificateBytes},
	"Renewed.hub_ca":      {bytes: certificateBytes},

	"Refused.reason":  {bytes: idBytes},
	"Refused.message": {bytes: messageBytes, text: true},
	"Move.hub":        {bytes: 512},
	"Dial.id":         {bytes: idBytes},

	"Left.behind":   {count: 10 * MaxLeftBehind, bytes: messageBytes, text: true}, // agents of v0.1 send all
	"Leaving.waits": {bytes: messageBytes, text: true},
	"Leaving.since": {max: atoll.MaxUnixSeconds},
}

// MaxLeftBehind is how many objects that stay in the member an agent lists when it leaves.
const MaxLeftBehind = 100

// MaxStatusBytes is the largest status of a bundle that an agent may report, as JSON. It has room for
// one status of 16 KiB that a script on the hub joins, with all items and tombstones.
const MaxStatusBytes = 48 << 10

// LimitError means that a peer sent a message over its bounds.
type LimitError struct {
	// Field of the message, such as Report.status.
	Field protoreflect.FullName
	// Problem of the field. It has nothing of what the peer sent.
	Problem string
}

func (e *LimitError) Error() string { return fmt.Sprintf("field %s %s", e.Field, e.Problem) }

// CheckLimits checks a message of either end against the bounds of its fields. The error is a
// *LimitError. Nothing of a message that fails may be parsed further, stored or logged.
func CheckLimits(m proto.Message) error { return checkMessage(m.ProtoReflect()) }

func checkMessage(m protoreflect.Message) (err error) {
	if len(m.GetUnknown()) > maxUnknownBytes {
		return &LimitError{limitKey(m.Descriptor()), fmt.Sprintf("has more than %d bytes of unknown fields", maxUnknownBytes)}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := limitKey(f)
		limit := frameLimits[name]
		switch {
		case f.IsMap():
			err = limit.checkMap(name, f, v.Map())
		case f.IsList():
			err = limit.checkList(name, f, v.List())
		default:
			err = limit.checkValue(name, f.Kind(), v)
		}
		return err == nil
	})
	return err
}

// limitKey is the name of a message or field without its package.
func limitKey(d protoreflect.Descriptor) protoreflect.FullName {
	return d.FullName()[len(d.ParentFile().Package())+1:]
}

func (l fieldLimit) checkMap(name protoreflect.FullName, f protoreflect.FieldDescriptor, m protoreflect.Map) (err error) {
	if err := l.checkCount(name, m.Len()); err != nil {
		return err
	}
	key := fieldLimit{bytes: l.keyBytes}
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if err = key.checkText(name, k.String()); err == nil {
			err = l.checkValue(name, f.MapValue().Kind(), v)
		}
		return err == nil
	})
	return err
}

func (l fieldLimit) checkList(name protoreflect.FullName, f protoreflect.FieldDescriptor, list protoreflect.List) error {
	if err := l.checkCount(name, list.Len()); err != nil {
		return err
	}
	for i := range list.Len() {
		if err := l.checkValue(name, f.Kind(), list.Get(i)); err != nil {
			return err
		}
	}
	return nil
}

func (l fieldLimit) checkCount(name protoreflect.FullName, n int) error {
	if n > l.count {
		return &LimitError{name, fmt.Sprintf("has %d elements; %d are the most", n, l.count)}
	}
	return nil
}

func (l fieldLimit) checkValue(name protoreflect.FullName, kind protoreflect.Kind, v protoreflect.Value) error {
	switch kind {
	case protoreflect.MessageKind:
		return checkMessage(v.Message())
	case protoreflect.StringKind:
		return l.checkText(name, v.String())
	case protoreflect.BytesKind:
		return l.checkSize(name, len(v.Bytes()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		if v.Uint() > uint64(l.max) {
			return &LimitError{name, fmt.Sprintf("is above %d", l.max)}
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if n := v.Int(); n < 0 || n > l.max {
			return &LimitError{name, fmt.Sprintf("is not within 0 and %d", l.max)}
		}
	}
	return nil
}

func (l fieldLimit) checkSize(name protoreflect.FullName, n int) error {
	if n > l.bytes {
		return &LimitError{name, fmt.Sprintf("has %d bytes; %d are the most", n, l.bytes)}
	}
	return nil
}

func (l fieldLimit) checkText(name protoreflect.FullName, s string) error {
	if err := l.checkSize(name, len(s)); err != nil || l.text {
		return err
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return &LimitError{name, "has a character that an identifier cannot have"}
		}
	}
	return nil
}
