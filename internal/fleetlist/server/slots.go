package server

import (
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxStreamsPerUser and maxStreams bound the streams of this hub.
	maxStreamsPerUser = 30
	maxStreams        = 1000
	// streamTime is how long a stream lasts. Clients open the next one.
	streamTime = 30 * time.Minute
	// minPause separates two answers of a stream. An answer that took long to make takes a longer pause, up to maxPause.
	minPause  = time.Second
	maxPause  = 20 * time.Second
	pauseCost = 50
)

// pauseAfter returns the pause after an answer that took so long to make.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(minPause, pauseCost*took), maxPause)
}

// streamSlots counts the streams that are open.
type streamSlots struct {
	mu     sync.Mutex
	byUser map[string]int
	open   int
}

// takeSlot counts another stream of a user. The caller ends it by the function.
func (s *streamSlots) takeSlot(user string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byUser[user] >= maxStreamsPerUser || s.open >= maxStreams {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("the hub serves as many streams of lists as it may, at most %d for one user; close some of them", maxStreamsPerUser), 10)
	}
	if s.byUser == nil {
		s.byUser = map[string]int{}
	}
	s.byUser[user]++
	s.open++
	return func() { s.releaseSlot(user) }, nil
}

func (s *streamSlots) releaseSlot(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byUser[user]--; s.byUser[user] == 0 {
		delete(s.byUser, user)
	}
	s.open--
}

// errorLine is the last line of a stream that ends with a reason.
type errorLine struct {
	Type   string        `json:"type"`
	Status metav1.Status `json:"status"`
}
