//go:build !unix

package main

import "errors"

// killUnsupported says why -kill can't work on this system.
const killUnsupported = "-kill needs SIGSTOP and SIGCONT, which this system does not have"

func (p *process) kill() error   { return errors.New(killUnsupported) }
func (p *process) stop() error   { return errors.New(killUnsupported) }
func (p *process) resume() error { return errors.New(killUnsupported) }
