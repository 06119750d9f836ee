package main

// wideLines is the number of lines of a package of the wide module.
const wideLines = 520

// Sources of the modules' packages.
const (
	storeSource = `package store%d

import (
	"context"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
)

type Row struct {
	gorm.Model
	Total int64
}

type Store struct {
	DB    *gorm.DB
	Redis *redis.Client
}

func (s *Store) Find(ctx context.Context, id int64) (*Row, error) {
	var r Row
	return &r, s.DB.WithContext(ctx).First(&r, id).Error
}
`
	serviceSource = `package svc%d

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"gorm.io/gorm"

	"example.com/service/store%[1]d"
)

type Service struct {
	Store *store%[1]d.Store
	conn  *grpc.ClientConn
	redis *redis.Client
	db    *gorm.DB
}

//lock:key="order%[1]d:<id>" ttl=60s reentrant
func (s *Service) Place(ctx context.Context, id int64, row *store%[1]d.Row) (*store%[1]d.Row, error) {
	if err := s.redis.Expire(ctx, "order", time.Minute).Err(); err != nil {
		return nil, err
	}
	return s.Store.Find(ctx, id)
}

//lock:key="order%[1]d:<id>" ttl=60s reentrant
func (s *Service) Cancel(ctx context.Context, id int64) error {
	return s.conn.Invoke(ctx, "/orders/Cancel", s.db, s.db)
}
`
	apiSource = `package api%d

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"example.com/service/svc%d"
)

type Server struct{ Service *svc%[2]d.Service }

func (s *Server) Routes(r *gin.Engine) {
	r.POST("/orders/:id", func(c *gin.Context) {
		if err := s.Service.Cancel(c.Request.Context(), 1); err != nil {
			c.String(http.StatusConflict, err.Error())
		}
	})
}
`
	wideSource = `package p%d

import (
	"context"
	"errors"
	"fmt"
)

type Service struct{ seen map[int64]bool }

// Order places an order.
//
%s
func (s *Service) Order(ctx context.Context, id int64) error {
	if s.seen[id] {
		return fmt.Errorf("order %%d: %%w", id, errors.ErrUnsupported)
	}
	return ctx.Err()
}
`
	bodySource = `
// f%d is here to be read.
func f%[1]d(a, b int) int {
	if a > b {
		return a
	}
	return f%[1]d(b, a)
}
`
)
