package main

import (
	_ "github.com/spf13/cobra"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "k8s.io/client-go/dynamic"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/metadata"
	_ "github.com/evanphx/json-patch/v5"
	_ "sigs.k8s.io/structured-merge-diff/v6/typed"
)

func main() {}
