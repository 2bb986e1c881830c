import time,sys
from deltalake import DeltaTable
for i in range(4):
    p=time.process_time();w=time.perf_counter()
    t=DeltaTable('/tmp/w/catalog/raw100'); p1=time.process_time();w1=time.perf_counter()
    t.create_checkpoint(); p2=time.process_time();w2=time.perf_counter()
    t.cleanup_metadata(); p3=time.process_time();w3=time.perf_counter()
    print('open cpu %.0f wall %.0f; ckpt cpu %.0f wall %.0f; clean cpu %.0f wall %.0f'%tuple(1e3*x for x in (p1-p,w1-w,p2-p1,w2-w1,p3-p2,w3-w2)))
