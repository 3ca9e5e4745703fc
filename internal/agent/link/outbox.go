package link

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// messageMemory is the memory of a message beside its fields, and elementMemory that of an element of a list or map
	// beside its text, in bytes. Short messages take much more memory than they take in a frame.
	messageMemory = 128
	elementMemory = 48
)

// errUnsent ends the session of a hub that requests more than it takes.
var errUnsent = errors.New("the hub does not take what the agent sends, which is more than the agent keeps for a hub")

// outbox are the frames that a session is to send.
type outbox struct {
	mu     sync.Mutex
	frames []*pb.FromAgent
	active time.Time // when something came or went
	closed bool
	wake   chan struct{}
	// unsent is the memory of the frames that are not sent yet, and allowed how large that may be before
	// end is called, which ends the session. The frames of an outbox that overflowed are dropped.
	unsent, allowed int
	end             func(error)
	welcomed        bool // the first Welcome came; Link.mu guards it
}

func newOutbox(allowed int, end func(error)) *outbox {
	return &outbox{active: time.Now(), wake: make(chan struct{}, 1), allowed: allowed, end: end}
}

func (o *outbox) put(frames ...*pb.FromAgent) { o.putRaisingLimit(0, frames...) }

// putWelcomeFrames puts the frames that the agent sends at the first Welcome, which count in addition to the
// allowed size: reports that the hub has not acknowledged, of which there is one for each bundle.
func (o *outbox) putWelcomeFrames(frames ...*pb.FromAgent) {
	more := 0
	if !o.welcomed {
		o.welcomed = true
		more = sizeOf(frames)
	}
	o.putRaisingLimit(more, frames...)
}

func sizeOf(frames []*pb.FromAgent) (bytes int) {
	for _, f := range frames {
		bytes += frameMemory(f)
	}
	return bytes
}

// frameMemory returns about how much memory a frame takes until it is sent, in bytes.
func frameMemory(f *pb.FromAgent) int { return proto.Size(f) + messagesMemory(f.ProtoReflect()) }

// messagesMemory returns the memory of a message and of the messages in it, without the text of their fields.
func messagesMemory(m protoreflect.Message) int {
	bytes := messageMemory
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			bytes += elementMemory * v.Map().Len()
		case f.IsList():
			bytes += elementMemory * v.List().Len()
			for i := 0; f.Kind() == protoreflect.MessageKind && i < v.List().Len(); i++ {
				bytes += messagesMemory(v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			bytes += messagesMemory(v.Message())
		}
		return true
	})
	return bytes
}

func (o *outbox) putRaisingLimit(more int, frames ...*pb.FromAgent) {
	o.mu.Lock()
	o.allowed += more
	o.unsent += sizeOf(frames)
	overflows := o.unsent > o.allowed
	if overflows {
		o.frames = nil
	} else {
		o.frames = append(o.frames, frames...)
	}
	o.mu.Unlock()
	if overflows {
		o.end(errUnsent)
		return
	}
	wakeup.WakeReader(o.wake)
}

func (o *outbox) takeFrames() (frames []*pb.FromAgent, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames, o.frames = o.frames, nil
	return frames, o.closed
}

// close: what is in it is sent, and then the session ends.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	wakeup.WakeReader(o.wake)
}

// recordActivity notes that a frame came, or that one was sent.
func (o *outbox) recordActivity(sent *pb.FromAgent) {
	o.mu.Lock()
	if sent != nil {
		o.unsent -= frameMemory(sent)
	}
	o.active = time.Now()
	o.mu.Unlock()
}

// lastActive is when a frame came or went; now, while some wait.
func (o *outbox) lastActive() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.frames) > 0 {
		return time.Now()
	}
	return o.active
}
