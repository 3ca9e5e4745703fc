package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// StandBy answers agents on behalf of a hub that does not lead, until ctx ends: it
// tells them that they are to dial another one, whose address leader gives, empty
// while nobody knows. It closes the listener. The answer is "unavailable", so that
// an agent goes on with the next address that it has.
func StandBy(ctx context.Context, l net.Listener, serving tls.Certificate, leader func() string) error {
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{serving}})),
		grpc.ReadBufferSize(0), grpc.WriteBufferSize(writeBuffer), grpc.SharedWriteBuffer(true),
		grpc.ConnectionTimeout(dialTimeout),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			who := "and no other one is known to lead"
			if address := leader(); address != "" {
				who = "the one that leads is at " + address
			}
			return status.Errorf(codes.Unavailable, "this hub stands by, %s; agents that know the address of every hub find it by themselves", who)
		}),
	)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	err := server.Serve(l)
	if ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("answer agents on %s while standing by: %w", l.Addr(), err)
}
